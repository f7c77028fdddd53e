// The inbox: inputs that were unknown or uncertain, by group and one by one, to name or to dismiss.

import { call } from "./api.js";
import { make, percent, plural } from "./views.js";

const byId = (id) => document.getElementById(id);
const SHOWN = 20; // inputs
const GROUPS = 8;
let useful = true; // whether the most useful inputs are listed, else the strangest

// `change(words, work)` does something and says how it went; `busy` is whether nothing can be learned now.
export async function showInbox(on, busy, change) {
  byId("inbox").hidden = !on;
  if (!on) return;
  const { inputs, kept, rows, days } = await call("GET", `inbox?limit=${SHOWN}`);
  byId("inbox-words").textContent = kept
    ? `${plural(kept, "input")} looked like nothing it knows, or like several things. At most ${rows} are kept, for ${plural(days, "day")}.`
    : "Nothing strange arrived.";
  const [groups, next] = kept ? await Promise.all([asked("inbox/groups"), asked(`inbox/next?count=${SHOWN}`)]) : [null, null];
  showGroups(groups, busy, change);
  for (const id of ["inbox-next", "inbox-strange"]) byId(id).parentElement.hidden = !next;
  const list = () => {
    byId("inbox-next").setAttribute("aria-pressed", useful);
    byId("inbox-strange").setAttribute("aria-pressed", !useful);
    byId("inbox-list").replaceChildren(...(useful && next ? next.inputs : inputs).map((input) => row(input, change)));
  };
  const choose = (what) => () => {
    useful = what;
    list();
  };
  byId("inbox-next").onclick = choose(true);
  byId("inbox-strange").onclick = choose(false);
  list();
}

// A head that cannot group or suggest refuses with 409; then there is the list alone.
const asked = (path) => call("GET", path).catch((error) => {
  if (error.status === 409) return null;
  throw error;
});

function showGroups(found, busy, change) {
  byId("inbox-new").hidden = !found?.groups.length;
  if (byId("inbox-new").hidden) return;
  const [all, inputs] = [found.groups.length, found.groups.reduce((sum, { ids }) => sum + ids.length, 0)];
  byId("inbox-groups-words").textContent =
    `${plural(all, "group")} of ${plural(inputs, "input")}${all > GROUPS ? `; the largest ${GROUPS}` : ""}. Name one, and it is a class.`;
  byId("inbox-groups").replaceChildren(...found.groups.slice(0, GROUPS).map((group, place) => grouped(group, place + 1, busy, change)));
}

function grouped({ ids, distinct, sure, words, typical }, place, busy, change) {
  const title = `${ids.length} look alike`;
  const facts = [distinct < ids.length ? `${distinct} different` : "", `${percent(sure)} sure`, words.join(", ")].filter(Boolean).join(" · ");
  const name = make("input", { maxLength: 100, placeholder: "Name them", ariaLabel: `Name of group ${place}` });
  name.setAttribute("list", "labels");
  const keep = async () => {
    const label = name.value.trim();
    const { waiting } = await call("POST", "inbox", { ids, label });
    return { label, waiting };
  };
  const button = (textContent, onclick, properties = {}) =>
    make("button", { type: "button", textContent, onclick, ariaLabel: `${textContent} group ${place}`, ...properties });
  return make(
    "li", {}, make("b", { textContent: title }), make("small", { textContent: facts }),
    make("ul", {}, ...typical.map((input) => make("li", {}, shown(input)))),
    make(
      "div", { className: "row" }, name,
      button("Add", () => change("Keeping them…", async () => {
        const { label, waiting } = await keep();
        return `Kept ${plural(ids.length, "input")} as examples of ${label}; ${waiting} waiting.`;
      })),
      button("Add and learn", () => change("Learning… predictions go on meanwhile.", async () => {
        const { label } = await keep();
        const { version, candidate } = await call("POST", "learn");
        return `Learned ${label} from ${plural(ids.length, "input")}: version ${version}${candidate ? " waits to be promoted" : ""}.`;
      }), { className: "primary", disabled: busy }),
    ),
  );
}

function shown({ id, kind, text }) {
  if (kind !== "image") return make("span", { className: "what", textContent: text ?? `input ${id}` });
  const picture = make("img", { alt: `Input ${id}` });
  call("GET", `inbox/${id}`).then(({ image }) => { picture.src = `data:image/jpeg;base64,${image}`; }, () => {});
  return picture;
}

function row(input, change) {
  const { id, label, probability, unknown } = input;
  const name = make("input", { maxLength: 100, placeholder: "Its name", ariaLabel: `Name of input ${id}` });
  name.setAttribute("list", "labels");
  const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick, ariaLabel: `${textContent} input ${id}` });
  return make(
    "li", {}, shown(input), make("small", { textContent: unknown ? "new?" : `${label}? ${percent(probability)}` }), name,
    button("Add", () => change("Keeping it…", async () => {
      const { waiting } = await call("POST", `inbox/${id}`, { label: name.value.trim() });
      return `Kept input ${id} as an example of ${name.value.trim()}; ${waiting} waiting.`;
    })),
    button("Dismiss", () => change("Dismissing…", async () => {
      await call("DELETE", `inbox/${id}`);
      return `Dismissed input ${id}.`;
    })),
  );
}
