// The page: what is shown is the sample, what is learned is on the server.

import { call, token } from "./api.js";
import { hasCamera, setUp } from "./camera.js";
import { Sheet } from "./draw.js";
import { ask, openClass } from "./edit.js";
import { showInbox } from "./inbox.js";
import { parts, read } from "./samples.js";
import { showCandidate } from "./stage.js";
import { findClass, plural, showBars, showClasses, showConfusion, showDrift, showHistory, showPromise, showStatus, showThumbs, took } from "./views.js";
import { offerWhy } from "./why.js";

const byId = (id) => document.getElementById(id);
const state = { dropped: null, kind: null, drawings: false, current: null, looking: 0 };
const sheet = new Sheet(byId("canvas"), () => {
  forgetFiles();
  look();
});

function sample() {
  if (state.dropped) return state.dropped;
  if (state.drawings && !sheet.empty) return { images: [sheet.toBase64()] };
  if (state.kind === "text" && byId("text").value.trim()) return { texts: [byId("text").value.trim()] };
  return null;
}

function forgetFiles() {
  state.dropped = null;
  byId("files").value = "";
  showThumbs([]);
  byId("drop-words").textContent = dropWords();
}

const dropWords = () =>
  state.kind === "image" ? `Drop ${state.drawings ? "images" : "photos"} here, or choose them` : "Drop vectors here (.csv, .json), or choose a file";

function tell(error) {
  if (error.status === 401) byId("token-form").hidden = false;
  showStatus(error.message, "failed");
}

// Says what is being done while it is, and what went wrong if it did.
async function doing(words, work) {
  showStatus(words, "busy");
  const buttons = [...document.querySelectorAll("#learn, #discard, #undo, #add, #promote, #reject, #history button, #inbox-groups button, #inbox-list button")];
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const done = await work();
    await refresh();
    showStatus(done);
  } catch (error) {
    await refresh().catch(() => {});
    tell(error);
  } finally {
    for (const id of ["add", "promote", "reject"]) byId(id).disabled = false;
  }
}

async function refresh() {
  const classes = await call("GET", "classes");
  if (classes.several_labels) location.replace("labels.html"); // which has a page of its own
  const [history, confusion, drift] = await Promise.all(["history", "confusion", "drift"].map((path) => call("GET", path)));
  state.kind = classes.backbone?.kind ?? null;
  state.drawings = Boolean(classes.backbone?.drawings);
  state.current = showHistory(history, goTo);
  showClasses(classes, (entry) => openClass(entry, (words, work) => doing(words, work).then(look)).catch(tell));
  showConfusion(confusion);
  showDrift(drift);
  showPromise(classes.automation ? await call("GET", "automation") : null);
  const waiting = classes.classes.reduce((sum, entry) => sum + entry.waiting, 0);
  const candidate = token.get() ? await showCandidate(history, (words, work) => doing(words, work).then(look)) : false;
  await showInbox(classes.inbox && token.get(), classes.learning || candidate, (words, work) => doing(words, work).then(look));
  byId("learn").disabled = !waiting || classes.learning || candidate;
  byId("discard").disabled = !waiting || classes.learning;
  byId("undo").disabled = !state.current || classes.learning || candidate;
  byId("drawing").hidden = !state.drawings;
  byId("camera-row").hidden = state.kind !== "image" || state.drawings || !hasCamera;
  byId("text-field").hidden = state.kind !== "text";
  byId("describe").hidden = state.kind !== "text" || !state.current;
  byId("describe-add").disabled = classes.learning || candidate;
  if (!state.dropped) byId("drop-words").textContent = dropWords();
}

// Predictions are asked for after each stroke; of answers that overtake each other the last one counts.
async function look() {
  const shown = sample();
  const turn = ++state.looking;
  if (!shown || !state.current) {
    showBars(null, state.current ? "Nothing to see yet." : "It knows nothing yet.");
    offerWhy(null);
    return;
  }
  const { thumbs, ...items } = shown;
  try {
    const part = parts(items)[0];
    const { predictions } = await call("POST", "predict", { ...part, preview: true });
    if (turn !== state.looking) return;
    showBars(predictions, "", teach);
    const [[kind, [first]]] = Object.entries(part);
    offerWhy({ [kind]: [first] }, tell);
  } catch (error) {
    if (turn === state.looking) showStatus(error.message, "failed");
  }
}

function teach() {
  byId("label").value = "";
  byId("label").scrollIntoView({ block: "center" });
  byId("label").focus({ preventScroll: true });
  showStatus("Name it and add it; a few more examples, then Learn.");
}

async function goTo(version) {
  const empty = "There is no version before this one. Going back leaves it knowing nothing; “Use” brings this version back.";
  if (!version && !await ask(empty, "Go back to nothing")) return undefined;
  return doing(`Going to version ${version}…`, async () => {
    await call("POST", `rollback/${version}`);
    return version ? `Version ${version} is in use.` : "Back at the start: it knows nothing.";
  }).then(look);
}

async function take(files) {
  if (!files.length) return;
  try {
    state.dropped = await read(files, state.kind);
    const { images, vectors, thumbs } = state.dropped;
    sheet.clear();
    showThumbs(thumbs);
    byId("drop-words").textContent = images ? plural(images.length, "image") : plural(vectors.length, "vector");
    showStatus("Name it and add it, or just see what it is taken for.");
    await look();
  } catch (error) {
    forgetFiles();
    showStatus(error.message, "failed");
  }
}

byId("clear").onclick = () => {
  sheet.clear();
  forgetFiles();
  look();
};

byId("add-form").onsubmit = (event) => {
  event.preventDefault();
  const shown = sample();
  if (!shown) {
    const words = state.drawings ? "Draw something first, or drop an image." : "Take or choose a photo first.";
    showStatus(state.kind === "image" ? words : "Show it something first.", "failed");
    return;
  }
  const { thumbs, ...items } = shown;
  const label = byId("label").value.trim();
  doing("Keeping it…", async () => {
    let [count, waiting] = [0, 0];
    for (const part of parts(items)) {
      const added = await call("POST", "examples", { label, ...part });
      [count, waiting] = [count + added.ids.length, added.waiting];
    }
    sheet.clear();
    byId("text").value = "";
    forgetFiles();
    showBars(null, "Nothing to see yet.");
    offerWhy(null);
    if (state.drawings) byId("canvas").focus({ preventScroll: true });
    return `Kept ${plural(count, "example")} of ${label}; ${waiting} waiting. Show another, or press Learn.`;
  });
};

byId("describe-form").onsubmit = (event) => {
  event.preventDefault();
  const lines = byId("descriptions").value.split("\n").filter((line) => line.trim());
  const pairs = lines.map((line) => line.split(/:(.*)/s).slice(0, 2).map((part) => part.trim()));
  const bad = lines.find((_, at) => pairs[at].length < 2 || !pairs[at][0] || !pairs[at][1]);
  if (bad) {
    showStatus(`Expected a name, a colon and a sentence on each line; “${bad.trim()}” is not so.`, "failed");
    return;
  }
  doing("Reading the descriptions…", async () => {
    const body = { labels: pairs.map(([label]) => label), texts: pairs.map(([, text]) => text) };
    const { version, new_classes: fresh, candidate } = await call("POST", "classes", body);
    byId("descriptions").value = "";
    const what = fresh.length ? `Added ${fresh.join(", ")}` : "No new class; how much a description counts was measured";
    return `${what}: version ${version}${candidate ? " waits to be promoted" : ""}.`;
  }).then(look);
};

byId("learn").onclick = () =>
  doing("Learning… predictions go on meanwhile.", async () => {
    const { version, new_classes: fresh, seconds, candidate } = await call("POST", "learn");
    if (candidate) return `Learned ${fresh.join(", ") || "more of known classes"}: version ${version} waits to be promoted.`;
    return `Learned ${fresh.join(", ") || "more of known classes"} in ${took(seconds)}: version ${version}.`;
  }).then(look);

byId("discard").onclick = () =>
  doing("Discarding…", async () => `Discarded ${plural((await call("DELETE", "examples")).discarded, "example")}.`);

setUp(take, (words) => showStatus(words, "failed"));
byId("find").oninput = findClass;
byId("undo").onclick = () => goTo(state.current.parent);

byId("text").oninput = () => {
  clearTimeout(state.typing);
  state.typing = setTimeout(look, 250);
};

byId("files").onchange = (event) => take(event.target.files);
byId("drop").onkeydown = (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  byId("files").click();
};
byId("files").tabIndex = -1;
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    byId("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") take(event.dataTransfer.files);
  });
}

byId("token-form").onsubmit = (event) => {
  event.preventDefault();
  token.set(byId("token").value);
  byId("token").value = "";
  byId("token-form").hidden = true;
  doing("Reading…", async () => "Try again.");
};

byId("token-form").hidden = Boolean(token.get());
showBars(null);
doing("Reading what it knows…", async () => "Ready.").then(look);

const [, head] = location.pathname.match(/\/heads\/([\w-]+)\/$/) ?? [];
if (head) { // one of many
  document.title = `${head}: taer`;
  byId("title").textContent = head;
  byId("all-heads").hidden = false;
}
