// What the service says, as elements. Text is always set as text, never as markup.

const byId = (id) => document.getElementById(id);
const SURE = 0.5; // a likelier class is named without a doubt
const MANY = 24; // classes whose confusions are a list, not a matrix
const NAMES = 160; // pixels beside a matrix, and of one of its cells
const CELL = 33;
const FEW = 20; // examples of which a percentage would promise too much

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
// A long name goes to a line of its own; one that is longer still breaks after the signs that join its words.
const named = (text) => text.split(/(\s+)/).map((word) => {
  const [first, ...others] = word.split(/(?<=[_/.-])(?=.)/);
  return others.length ? make("span", { className: "name" }, first, ...others.flatMap((part) => [make("wbr"), part])) : word;
});
const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

export const took = (seconds) => (seconds < 0.01 ? "under 0.01\u00a0s" : `${seconds.toFixed(2)}\u00a0s`);

export function showStatus(words, state = "") {
  byId("status").textContent = words;
  byId("status").parentElement.className = state;
}

export function showBars(predictions, words = "Nothing yet.", teach = () => {}) {
  const [first, ...others] = predictions ?? [];
  const items = (first?.probabilities ?? []).map(({ label, probability }) => {
    const item = make("li", {}, make("b", {}, ...named(label)), make("span", { textContent: percent(probability, 1) }));
    item.style.setProperty("--share", percent(probability, 2).replace(" ", ""));
    return item;
  });
  if (others.length) {
    const names = others.slice(0, 20).map(({ label, unknown }) => (unknown ? `${label}?` : label));
    if (others.length > names.length) names.push(`${others.length - names.length} more`);
    items.push(make("li", { className: "none", textContent: `The others: ${names.join(", ")}` }));
  }
  byId("bars").replaceChildren(...(items.length ? items : [make("li", { className: "none", textContent: words })]));
  showVerdict(first, teach);
  byId("person").hidden = first?.automatic === undefined;
  byId("person").className = first?.automatic ? "person" : "person ask";
  byId("person").textContent = first?.automatic ? "This answer needs no person." : "A person should check this answer.";
}

// Where it does not know, it says so before it lists what is nearest.
function showVerdict(first, teach) {
  const [best, second] = first?.probabilities ?? [];
  const verdict = byId("verdict");
  verdict.hidden = !first || !(first.unknown || best.probability < SURE);
  if (verdict.hidden) return;
  if (first.unknown) {
    const button = make("button", { type: "button", textContent: "Teach it", onclick: teach });
    verdict.replaceChildren(make("b", { textContent: "Something new?" }), " It looks like no class it knows.", button);
  } else {
    const or = second ? ` Perhaps ${best.label}, perhaps ${second.label}.` : "";
    verdict.replaceChildren(make("b", { textContent: "Not sure." }), or);
  }
}

export function showThumbs(addresses) {
  const hide = ({ target }) => target.remove(); // a format that this browser does not read
  byId("thumbs").replaceChildren(...addresses.map((src) => make("img", { src, alt: "", onerror: hide })));
}

export function showClasses({ classes }, open) {
  const tasks = classes.map(({ task }) => task).filter((task) => task !== null);
  const latest = Math.min(...tasks) < Math.max(...tasks) ? Math.max(...tasks) : null; // if there are older ones
  byId("classes").replaceChildren(
    ...classes.map((entry) => {
      const { label, task, waiting } = entry;
      const note = [task === null ? "new" : `task ${task}`, waiting ? `${waiting} waiting` : ""].filter(Boolean).join(", ");
      const className = waiting ? "waiting" : task === latest ? "latest" : "";
      const chip = make("button", { type: "button", onclick: () => open(entry) }, ...named(label), " ", make("small", { textContent: note }));
      const item = make("li", { className }, chip);
      item.dataset.label = label.toLowerCase();
      return item;
    }),
  );
  byId("classes-title").textContent = classes.length > 1 ? `${classes.length} classes, in order of learning` : "Classes, in order of learning";
  byId("find").hidden = classes.length <= 12;
  findClass();
  byId("labels").replaceChildren(...classes.map(({ label }) => make("option", { value: label })));
  const waiting = classes.filter((entry) => entry.waiting);
  byId("waiting").textContent = waiting.length
    ? `Waiting to be learned: ${waiting.map((entry) => `${entry.waiting} × ${entry.label}`).join(", ")}.`
    : classes.length
      ? "Show it a few examples of something new, name it, then press Learn."
      : "It knows nothing yet. Show it a few examples of two or more things, then press Learn.";
}

export function findClass() {
  const wanted = byId("find").hidden ? "" : byId("find").value.trim().toLowerCase();
  for (const item of byId("classes").children) item.hidden = !item.dataset.label.includes(wanted);
}

// A share of few examples is told as what it is: 1 of 1.
function measured(accuracy, held) {
  if (accuracy === null) return "no tests yet";
  const right = `${Math.round(accuracy * held)} of ${plural(held, "test")} right`;
  return held < FEW ? right : `${percent(accuracy, 1)}, ${right}`;
}

export function showHistory({ current, versions }, goTo) {
  const items = versions.toReversed().map((entry) => {
    const { version, edit, new_classes: fresh, accuracy, held_back: held, seconds, created, examples } = entry;
    const names = fresh.length > 8 ? `${fresh.slice(0, 8).join(", ")} and ${fresh.length - 8} more` : fresh.join(", ");
    const what = edit ? sentence(edit).slice(0, -1) : examples ? (names || "more of known classes") : `started with ${names}`;
    const facts = [
      measured(accuracy, held),
      plural(entry.classes, "class"),
      examples ? `${plural(examples, "example")} learned in ${took(seconds)}` : "",
      new Date(created).toLocaleString([], { dateStyle: "short", timeStyle: "short" }),
    ];
    const track = make("div", { className: held < FEW ? "track few" : "track" }, make("i"));
    track.style.setProperty("--share", percent(accuracy ?? 0, 1).replace(" ", ""));
    const action = version === current
      ? make("em", { textContent: "in use" })
      : entry.candidate
        ? make("em", { textContent: "waits" })
      : make("button", { type: "button", textContent: "Use", onclick: () => goTo(version), ariaLabel: `Use version ${version}` });
    return make(
      "li", { className: version === current ? "current" : "" },
      make("span", { className: "number", textContent: version }), make("span", { className: "what" }, ...named(what)),
      ...(accuracy === null ? [] : [track]), make("small", { textContent: facts.filter(Boolean).join(" · ") }), action,
    );
  });
  byId("history").replaceChildren(
    ...(items.length ? items : [make("li", {}, make("span"), make("span", { className: "what quiet", textContent: "No version yet." }))]),
  );
  const inUse = versions.find(({ version }) => version === current);
  byId("changes").textContent = !inUse
    ? "Nothing yet."
    : inUse.changes
      ? effect(inUse)
      : inUse.edit
        ? sentence(inUse.edit)
        : "It was the first: there were no old classes to change.";
  byId("changes").append(...(inUse?.warnings ?? []).map((warning) => make("span", { textContent: ` ${warning}.` })));
  return inUse;
}

// What a task did to the classes that were known before.
function effect({ changes, new_classes: fresh, classes }) {
  const { forgotten, compared, changed } = changes;
  const moved = changes.moved ?? [];
  const old = classes - fresh.length;
  const words = [];
  if (forgotten.length) words.push(`It forgot ${forgotten.join(", ")}.`);
  if (old && !moved.length) words.push(`Nothing changed for the ${plural(old, "class")} it knew.`);
  else if (moved.length > 8) words.push(`${moved.length} of the ${plural(old, "class")} it knew changed.`);
  else if (moved.length) words.push(`What it knows about ${moved.join(", ")} changed.`);
  if (moved.length && compared) words.push(`${changed} of ${plural(compared, "test")} now ${changed === 1 ? "gets" : "get"} another answer.`);
  return words.join(" ");
}

export function showDrift({ answered, unknown, fraction, expected, alarm }) {
  const raised = Boolean(alarm?.raised);
  byId("drift").hidden = answered < FEW && !raised;
  byId("drift").className = raised ? "verdict" : "quiet";
  const usual = alarm?.reference ?? expected;
  byId("drift").textContent = raised
    ? `What arrives has changed: ${alarm.unknown} of ${plural(alarm.answered, "answer")} of this version looked like something new, and up to ` +
      `${percent(usual)} is normal. Is there a new class to teach? (An alarm without a reason has a chance of ${percent(alarm.false_alarms)}.)`
    : `${unknown} of ${plural(answered, "answer")} since yesterday looked like something new; up to ${percent(usual)} is normal.` +
      (alarm === null && fraction > 2 * expected ? " Is there a new class to teach?" : ""); // without tests there is no alarm
}

// What is promised about answers without a person; null if the service promises nothing.
export function showPromise(promise) {
  byId("promise").hidden = !promise;
  if (!promise) return;
  const { errors, confidence, coverage, held_out: tests, problem } = promise;
  const from = tests === null ? "as the head came with" : `from ${plural(tests, "test")}`;
  byId("promise").textContent = problem
    ? `Every answer is for a person: ${problem}.`
    : `${percent(coverage)} of answers need no person: at most ${+(100 * errors).toFixed(2)} % of these are wrong (${percent(confidence)} sure, ${from}).`;
}

export function showConfusion({ classes, cells }) {
  const total = cells.reduce((sum, { count }) => sum + count, 0);
  const wrong = cells.filter(({ truth, answer }) => truth !== answer);
  const many = classes.length > MANY || NAMES + CELL * classes.length > byId("confusion").clientWidth;
  byId("confusion-words").textContent = !total
    ? "No tests yet."
    : many
      ? wrong.length ? `The worst confusions in ${plural(total, "test")}, by the fraction of a class they cost.` : `None: ${plural(total, "test")}, all right.`
      : `Rows are the truth, columns the answer, both in order of learning; ${plural(total, "test")}.`;
  byId("confusion").replaceChildren(...(!total ? [] : [many ? worst(wrong, cells) : table(classes, cells)]));
}

// Pairs of classes that are confused most.
function worst(wrong, cells) {
  const size = new Map();
  for (const { truth, count } of cells) size.set(truth, (size.get(truth) ?? 0) + count);
  const pairs = wrong.map((cell) => ({ ...cell, of: size.get(cell.truth), share: cell.count / size.get(cell.truth) }));
  pairs.sort((one, other) => other.count * other.share - one.count * one.share);
  return make("ol", { className: "bars pairs" }, ...pairs.slice(0, 12).map(({ truth, answer, count, of, share }) => {
    const item = make("li", {}, make("b", {}, ...named(truth), make("small", { textContent: " taken for " }), ...named(answer)), make("span", { textContent: `${count} of ${of}` }));
    item.style.setProperty("--share", percent(share, 1).replace(" ", ""));
    return item;
  }));
}

function table(classes, cells) {
  const counts = new Map(cells.map(({ truth, answer, count }) => [`${truth}\n${answer}`, count]));
  const rows = classes.map((truth) => classes.map((answer) => counts.get(`${truth}\n${answer}`) ?? 0));
  const head = make("tr", {}, make("th"), ...classes.map((name) => make("th", { scope: "col", title: name }, make("span", { textContent: name }))));
  const body = rows.map((row, i) =>
    make("tr", {}, make("th", { scope: "row", textContent: classes[i], title: classes[i] }), ...row.map((count, j) => {
      const cell = make("td", { textContent: count || "" });
      cell.style.background = shade(count, row, i === j);
      return cell;
    })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function shade(count, row, right) {
  const share = count / Math.max(1, row.reduce((sum, value) => sum + value, 0));
  return count ? `rgba(var(--${right ? "heat" : "wrong"}), ${0.15 + 0.6 * share})` : "";
}
