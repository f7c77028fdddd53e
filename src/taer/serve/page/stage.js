// The candidate: what promoting it would change, and the buttons to decide.

import { call } from "./api.js";
import { make, percent, plural } from "./views.js";

const byId = (id) => document.getElementById(id);

// `change(words, work)` does something that changes the version, and says how it went.
export async function showCandidate({ versions }, change) {
  const waits = versions.some(({ candidate }) => candidate);
  byId("candidate").hidden = !waits;
  if (!waits) return false;
  const found = await call("GET", "versions/candidate");
  byId("candidate-title").textContent = `Version ${found.version} waits for you`;
  byId("candidate-words").replaceChildren(...sentences(found).map((textContent) => make("p", { textContent })));
  byId("candidate-examples").replaceChildren(...found.examples.map(row));
  byId("promote").onclick = () =>
    change("Promoting…", async () => {
      const { current } = await call("POST", "versions/candidate/promote");
      return `Version ${current} is in use.`;
    });
  byId("reject").onclick = () =>
    change("Discarding…", async () => {
      const { waiting } = await call("POST", "versions/candidate/reject");
      return `Discarded version ${found.version}; ${plural(waiting, "example")} waiting.`;
    });
  return true;
}

function sentences(found) {
  const words = [];
  const points = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(1)}`;
  words.push(found.before === null
    ? "There are no tests of the classes it knew, so nothing can be compared."
    : `On ${plural(found.compared, "test")} of the classes it knew: ${percent(found.before, 1)} right before, ${percent(found.after, 1)} after ` +
      `(the change is between ${points(found.at_least)} and ${points(found.at_most)} points).`);
  if (found.new_accuracy !== null) words.push(`On ${plural(found.new_compared, "test")} of new classes: ${percent(found.new_accuracy, 1)} right.`);
  if (found.losing.length) {
    const some = found.losing.slice(0, 5).map(({ label, examples, before, after }) => `${label} (${before} → ${after} of ${examples})`);
    words.push(`Classes that lose: ${some.join(", ")}${found.losing.length > 5 ? " and more" : ""}.`);
  }
  if (found.only_new_classes_win) words.push("No old score moved: an answer changes only where a new class wins.");
  const { answered, differ } = found.shadow;
  if (answered) words.push(`Of ${plural(answered, "answer")} since, it would have given ${differ} differently.`);
  words.push(found.differing ? `${plural(found.differing, "test")} would get another answer:` : "No test would get another answer.");
  return words;
}

function row({ id, truth, before, after, text }) {
  return make("li", {}, make("span", { className: "what", textContent: text ?? `example ${id}` }),
    make("small", { textContent: `is ${truth}: ${before} → ${after}` }));
}
