// The page: what is shown is the sample, what is learned is on the server.

import { call, token } from "./api.js";
import { hasCamera, setUp } from "./camera.js";
import { Sheet } from "./draw.js";
import { ask, openClass } from "./edit.js";
import { parts, read } from "./samples.js";
import { findClass, plural, showBars, showClasses, showConfusion, showDrift, showHistory, showStatus, showThumbs, took } from "./views.js";

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
  const buttons = [...document.querySelectorAll("#learn, #discard, #undo, #add, #history button")];
  buttons.forEach((button) => { button.disabled = true; });
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
}

async function refresh() {
  const [classes, history, confusion, drift] = await Promise.all(["classes", "history", "confusion", "drift"].map((path) => call("GET", path)));
  state.kind = classes.backbone?.kind ?? null;
  state.drawings = Boolean(classes.backbone?.drawings);
  state.current = showHistory(history, goTo);
  showClasses(classes, (entry) => openClass(entry, (words, work) => doing(words, work).then(look)).catch(tell));
  showConfusion(confusion);
  showDrift(drift);
  const waiting = classes.classes.reduce((sum, entry) => sum + entry.waiting, 0);
  byId("learn").disabled = byId("discard").disabled = !waiting || classes.learning;
  byId("undo").disabled = !state.current || classes.learning;
  byId("drawing").hidden = !state.drawings;
  byId("camera-row").hidden = state.kind !== "image" || state.drawings || !hasCamera;
  byId("text-field").hidden = state.kind !== "text";
  if (!state.dropped) byId("drop-words").textContent = dropWords();
}

// Predictions are asked for after each stroke; of answers that overtake each other the last one counts.
async function look() {
  const shown = sample();
  const turn = ++state.looking;
  if (!shown || !state.current) {
    showBars(null, state.current ? "Nothing to see yet." : "It knows nothing yet.");
    return;
  }
  const { thumbs, ...items } = shown;
  try {
    const { predictions } = await call("POST", "predict", { ...parts(items)[0], preview: true });
    if (turn === state.looking) showBars(predictions, "", teach);
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
    if (state.drawings) byId("canvas").focus({ preventScroll: true });
    return `Kept ${plural(count, "example")} of ${label}; ${waiting} waiting. Show another, or press Learn.`;
  });
};

byId("learn").onclick = () =>
  doing("Learning… predictions go on meanwhile.", async () => {
    const { version, new_classes: fresh, seconds } = await call("POST", "learn");
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
