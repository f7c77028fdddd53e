// The page of a head of several labels: a sample has any number of them.

import { call, token } from "./api.js";
import { parts, read } from "./samples.js";
import { make, percent, plural, showStatus, showThumbs, took } from "./views.js";

const byId = (id) => document.getElementById(id);
const state = { dropped: null, kind: null, current: null, looking: 0, classes: [], chosen: new Set() };

function sample() {
  if (state.dropped) return state.dropped;
  if (state.kind === "text" && byId("text").value.trim()) return { texts: [byId("text").value.trim()] };
  return null;
}

function forget() {
  state.dropped = null;
  byId("files").value = "";
  byId("text").value = "";
  showThumbs([]);
  state.chosen.clear();
  byId("drop-words").textContent = state.kind === "image" ? "Choose photos" : "Choose vectors (.csv, .json)";
}

function tell(error) {
  if (error.status === 401) byId("token-form").hidden = false;
  showStatus(error.message, "failed");
}

async function doing(words, work) {
  showStatus(words, "busy");
  for (const button of document.querySelectorAll("main button")) button.disabled = true;
  try {
    const done = await work();
    await refresh();
    showStatus(done);
  } catch (error) {
    await refresh().catch(() => {});
    tell(error);
  } finally {
    byId("add").disabled = false;
  }
  await look();
}

function showLabels() {
  byId("labels").replaceChildren(...state.classes.map(({ label }) => {
    const chip = make("button", { type: "button", textContent: label, ariaPressed: String(state.chosen.has(label)) });
    chip.onclick = () => {
      if (!state.chosen.delete(label)) state.chosen.add(label);
      chip.ariaPressed = String(state.chosen.has(label));
    };
    return chip;
  }));
}

const quality = ({ f1_micro: micro, f1_macro: macro, held_back: held }) =>
  (micro ?? null) === null ? "no tests yet" : `F1 ${percent(micro, 1)} micro, ${percent(macro, 1)} macro, on ${plural(held, "test")}`;

function showHistory({ current, versions }) {
  state.current = versions.find(({ version }) => version === current);
  byId("history").replaceChildren(...versions.toReversed().map((entry) => {
    const { version, new_classes: fresh, examples, seconds, classes } = entry;
    const what = fresh.length ? fresh.slice(0, 8).join(", ") + (fresh.length > 8 ? ` and ${fresh.length - 8} more` : "") : "more of known labels";
    const facts = [quality(entry), plural(classes, "label"), examples ? `${plural(examples, "example")} learned in ${took(seconds)}` : ""];
    const action = version === current
      ? make("em", { textContent: "in use" })
      : make("button", { type: "button", textContent: "Use", onclick: () => goTo(version), ariaLabel: `Use version ${version}` });
    return make(
      "li", { className: version === current ? "current" : "" }, make("span", { className: "number", textContent: version }),
      make("span", { className: "what", textContent: what }), make("small", { textContent: facts.filter(Boolean).join(" · ") }), action,
    );
  }));
}

async function refresh() {
  const [classes, history] = await Promise.all(["classes", "history"].map((path) => call("GET", path)));
  state.kind = classes.backbone?.kind ?? null;
  state.classes = classes.classes;
  showHistory(history);
  showLabels();
  const waiting = token.get() ? await waits() : 0;
  byId("waiting").textContent = waiting ? `${plural(waiting, "example")} waiting to be learned.` : "Show it something, press the labels that fit, then Add.";
  byId("text-field").hidden = state.kind !== "text";
  if (!state.dropped) byId("drop-words").textContent = state.kind === "image" ? "Choose photos" : "Choose vectors (.csv, .json)";
  byId("learn").disabled = byId("discard").disabled = !waiting || classes.learning;
  byId("undo").disabled = !state.current || classes.learning;
}

// Examples that wait, those without a label among them.
async function waits() {
  let [count, after] = [0, 0];
  do {
    const { examples, next } = await call("GET", `examples?limit=1000&after=${after}`);
    count += examples.filter(({ version }) => version === null).length;
    after = next;
  } while (after !== null);
  return count;
}

// Of answers that overtake each other the last one counts.
async function look() {
  const shown = sample();
  const turn = ++state.looking;
  byId("verdict").hidden = true;
  if (!shown || !state.current) {
    byId("bars").replaceChildren(make("li", { className: "none", textContent: state.current ? "Nothing to see yet." : "It knows nothing yet." }));
    return;
  }
  const { thumbs, ...items } = shown;
  try {
    const { predictions: [{ labels, probabilities }] } = await call("POST", "predict", { ...parts(items)[0], preview: true });
    if (turn !== state.looking) return;
    byId("verdict").hidden = false;
    byId("verdict").textContent = labels.length ? labels.join(", ") : "None of its labels.";
    byId("bars").replaceChildren(...probabilities.map(({ label, probability }) => {
      const item = make("li", {}, make("b", { textContent: label }), make("span", { textContent: percent(probability, 1) }));
      item.style.setProperty("--share", percent(probability, 2).replace(" ", ""));
      return item;
    }));
    state.chosen = new Set(labels); // a person corrects them
    showLabels();
  } catch (error) {
    if (turn === state.looking) tell(error);
  }
}

const goTo = (version) => doing(`Going to version ${version}…`, async () => {
  await call("POST", `rollback/${version}`);
  return version ? `Version ${version} is in use.` : "Back at the start: it knows nothing.";
});

byId("add-form").onsubmit = (event) => {
  event.preventDefault();
  const shown = sample();
  if (!shown) {
    showStatus("Show it something first.", "failed");
    return;
  }
  const { thumbs, ...items } = shown;
  const label = [...state.chosen, byId("label").value].filter((part) => part.trim()).join(";") || ";";
  doing("Keeping it…", async () => {
    let count = 0;
    for (const part of parts(items)) count += (await call("POST", "examples", { label, ...part })).ids.length;
    byId("label").value = "";
    forget();
    return `Kept ${plural(count, "example")}${label === ";" ? " without a label" : ` of ${label.replaceAll(";", ", ")}`}. Show another, or press Learn.`;
  });
};

byId("learn").onclick = () => doing("Learning… answers go on meanwhile.", async () => {
  const { version, new_classes: fresh, seconds } = await call("POST", "learn");
  return `Learned ${fresh.join(", ") || "more of known labels"} in ${took(seconds)}: version ${version}.`;
});

byId("discard").onclick = () =>
  doing("Discarding…", async () => `Discarded ${plural((await call("DELETE", "examples")).discarded, "example")}.`);

byId("undo").onclick = () => goTo(state.current.parent);

byId("text").oninput = () => {
  clearTimeout(state.typing);
  state.typing = setTimeout(look, 250);
};

byId("files").onchange = async ({ target }) => {
  if (!target.files.length) return;
  try {
    state.dropped = await read(target.files, state.kind);
    const { images, vectors, thumbs } = state.dropped;
    showThumbs(thumbs);
    byId("drop-words").textContent = images ? plural(images.length, "image") : plural(vectors.length, "vector");
    await look();
  } catch (error) {
    forget();
    tell(error);
  }
};

byId("token-form").onsubmit = (event) => {
  event.preventDefault();
  token.set(byId("token").value);
  byId("token").value = "";
  byId("token-form").hidden = true;
  doing("Reading…", async () => "Try again.");
};

byId("token-form").hidden = Boolean(token.get());
doing("Reading what it knows…", async () => "Ready.");
