// One class and its examples: rename, forget, correct, remove, erase for good.

import { call } from "./api.js";
import { make, plural } from "./views.js";

const byId = (id) => document.getElementById(id);
const PAGE = 20; // examples that are fetched at once

// Whether the person agrees to what cannot be undone with one click.
export function ask(words, yes, className = "primary") {
  byId("ask-words").textContent = words;
  Object.assign(byId("ask-yes"), { textContent: yes, className });
  return new Promise((resolve) => {
    const close = (answer) => () => {
      byId("ask").close();
      resolve(answer);
    };
    byId("ask-yes").onclick = close(true);
    byId("ask-no").onclick = close(false);
    byId("ask").oncancel = () => resolve(false);
    byId("ask").showModal();
  });
}

// `change(words, work)` does something that makes a new version, and says how it went.
export async function openClass({ label, task, examples, held_back: held, waiting }, change) {
  const dialog = byId("class-dialog");
  const then = (words, work) => {
    dialog.close();
    return change(words, work);
  };
  byId("class-name").textContent = label;
  byId("class-facts").textContent = task === null
    ? `${plural(waiting, "example")} waiting to be learned.`
    : `Learned in task ${task} from ${plural(examples, "example")} taught here; ${plural(held, "test")}, ${waiting} waiting.`;
  byId("rename-form").hidden = task === null;
  byId("rename").value = label;
  byId("rename-form").onsubmit = (event) => {
    event.preventDefault();
    const name = byId("rename").value.trim();
    then("Renaming…", async () => {
      const { version } = await call("PATCH", path(label), { label: name });
      return `${label} is now called ${name}: version ${version}.`;
    });
  };
  byId("forget").onclick = () =>
    then("Forgetting…", async () => {
      const { version } = await call("DELETE", path(label));
      return `Forgot ${label}: version ${version}. Undo brings it back.`;
    });
  byId("examples").replaceChildren();
  byId("class-close").onclick = () => dialog.close();
  await showMore(label, 0, then); // without the token there is nothing to open
  dialog.showModal();
}

const path = (label) => `classes/${encodeURIComponent(label)}`;

async function showMore(label, after, then) {
  const { examples, next } = await call("GET", `examples?label=${encodeURIComponent(label)}&after=${after}&limit=${PAGE}`);
  byId("examples").append(...examples.map((example) => row(example, then)));
  byId("more").hidden = next === null;
  byId("more").onclick = () => showMore(label, next, then);
}

function row({ id, label, version, held_back: held, kind, text }, then) {
  const shown = kind === "image" ? make("img", { alt: `Example ${id}` }) : make("span", { className: "what", textContent: text ?? `example ${id}` });
  if (kind === "image") {
    call("GET", `examples/${id}`).then(({ image }) => { shown.src = `data:image/jpeg;base64,${image}`; });
  }
  const state = version === null ? "waiting" : held ? "test" : `version ${version}`;
  const name = make("input", { value: label, maxLength: 100, ariaLabel: `Label of example ${id}` });
  name.setAttribute("list", "labels");
  const told = (made) => (made === null ? "." : `: version ${made}.`);
  const button = (textContent, onclick, className = "") =>
    make("button", { type: "button", className, textContent, onclick, ariaLabel: `${textContent} example ${id}` });
  return make(
    "li", {}, shown, make("small", { textContent: state }), name,
    button("Correct", () => then("Correcting…", async () => {
      const { version: made } = await call("PATCH", `examples/${id}`, { label: name.value.trim() });
      return `Example ${id} is now of ${name.value.trim()}${told(made)}`;
    })),
    button("Remove", () => then("Removing…", async () => {
      const { version: made } = await call("DELETE", `examples/${id}`);
      return `Removed example ${id} of ${label}${told(made)}`;
    })),
    button("Erase for good", async () => {
      const words = `Erase example ${id} of ${label} for good, with every version that learned from it? This cannot be undone.`;
      if (!await ask(words, "Erase for good", "danger")) return;
      then("Erasing…", async () => {
        const { versions, current, waiting, notices } = await call("POST", "purge", { ids: [id] });
        const gone = versions.length ? ` and ${plural(versions.length, "version")}; version ${current} answers, ${waiting} waiting` : "";
        return [`Erased example ${id}${gone}.`, ...notices.map((notice) => `${notice[0].toUpperCase()}${notice.slice(1)}.`)].join(" ");
      });
    }, "danger"),
  );
}
