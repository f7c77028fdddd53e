// The inbox: inputs that were unknown or uncertain, by group and one by one, to name or to dismiss.

import { call } from "./api.js";
import { ask } from "./edit.js";
import { make, percent, plural } from "./views.js";

const byId = (id) => document.getElementById(id);
const SHOWN = 20; // inputs
const GROUPS = 8;
const MEMBERS = 50; // of a group, read at once
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
    `${plural(all, "group")} of ${plural(inputs, "input")}${all > GROUPS ? `; the largest ${GROUPS}` : ""}. Name one, and it is a class; or dismiss it.`;
  byId("inbox-groups").replaceChildren(...found.groups.slice(0, GROUPS).map((group, place) => grouped(group, place + 1, busy, change)));
}

// All its members are chosen at first; those that the person leaves out stay in the inbox.
function grouped({ ids, distinct, sure, words, typical }, place, busy, change) {
  const chosen = new Set(ids);
  const title = make("b");
  const facts = [distinct < ids.length ? `${distinct} different` : "", `${percent(sure)} sure`, words.join(", ")].filter(Boolean).join(" · ");
  const name = nameField("Name them", `Name of group ${place}`);
  const keep = async () => {
    const label = name.value.trim();
    const { ids: kept, waiting } = await call("POST", "inbox", { ids: [...chosen], label });
    return { label, waiting, kept: plural(kept.length, "input") };
  };
  const button = (textContent, onclick, properties = {}) =>
    make("button", { type: "button", textContent, onclick, ariaLabel: `${textContent} group ${place}`, ...properties });
  const add = button("Add", whenNamed(name, () => change("Keeping them…", async () => {
    const { label, waiting, kept } = await keep();
    return `Kept ${kept} as examples of ${label}; ${waiting} waiting.`;
  })));
  const learn = button("Add and learn", whenNamed(name, () => change("Learning… predictions go on meanwhile.", async () => {
    const { label, kept } = await keep();
    const { version, candidate } = await call("POST", "learn");
    return `Learned ${label} from ${kept}: version ${version}${candidate ? " waits to be promoted" : ""}.`;
  })), { className: "primary" });
  const dismiss = button("Dismiss group", async () => {
    const them = `${chosen.size < ids.length ? `${chosen.size} of ` : ""}${plural(ids.length, "input")}`;
    if (!await ask(`Dismiss ${them}? They are deleted for good.`, "Dismiss", "danger")) return;
    await change("Dismissing…", async () => {
      const { discarded } = await call("POST", "inbox/dismiss", { ids: [...chosen] });
      return `Dismissed ${plural(discarded, "input")}.`;
    });
  }, { ariaLabel: `Dismiss group ${place}` });
  const count = () => {
    title.textContent = chosen.size < ids.length ? `${chosen.size} of ${ids.length} chosen` : `${ids.length} look alike`;
    for (const action of [add, dismiss]) action.disabled = !chosen.size;
    learn.disabled = !chosen.size || busy;
  };
  count();
  const members = make("ul", {}, ...typical.map((input) => make("li", {}, shown(input))));
  const more = button("Show all", async () => {
    const first = members.className !== "members";
    const from = first ? 0 : members.children.length;
    more.disabled = true;
    try {
      const found = await Promise.all(ids.slice(from, from + MEMBERS).map((id) => call("GET", `inbox/${id}`)));
      if (first) members.replaceChildren();
      members.className = "members";
      members.append(...found.map((input) => member(input, chosen, count)));
      Object.assign(more, { disabled: false, textContent: "Show more", ariaLabel: `Show more of group ${place}`, hidden: from + found.length >= ids.length });
    } catch (error) {
      change("Reading…", () => { throw error; }); // one is gone, say: the groups are read again
    }
  }, { ariaLabel: `Show all of group ${place}`, hidden: typical.length === ids.length });
  return make(
    "li", {}, title, make("small", { textContent: facts }), members,
    make("div", { className: "row" }, name, add, learn),
    make("div", { className: "row" }, more, dismiss),
  );
}

function member(input, chosen, count) {
  const box = make("input", { type: "checkbox", checked: true });
  box.onchange = () => {
    chosen[box.checked ? "add" : "delete"](input.id);
    count();
  };
  return make("li", {}, make("label", {}, box, shown(input)));
}

function nameField(placeholder, ariaLabel) {
  const field = make("input", { maxLength: 100, placeholder, ariaLabel, required: true });
  field.setAttribute("list", "labels");
  return field;
}

// A click without a name shows where it is missing, and leaves what was chosen.
const whenNamed = (field, work) => () => field.reportValidity() && work();

function shown({ id, kind, text, image }) {
  if (kind !== "image") return make("span", { className: "what", textContent: text ?? `input ${id}` });
  const picture = make("img", { alt: `Input ${id}` });
  const show = (content) => { picture.src = `data:image/jpeg;base64,${content}`; };
  if (image) show(image);
  else call("GET", `inbox/${id}`).then((found) => show(found.image), () => {});
  return picture;
}

function row(input, change) {
  const { id, label, probability, unknown } = input;
  const name = nameField("Its name", `Name of input ${id}`);
  const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick, ariaLabel: `${textContent} input ${id}` });
  return make(
    "li", {}, shown(input), make("small", { textContent: unknown ? "new?" : `${label}? ${percent(probability)}` }), name,
    button("Add", whenNamed(name, () => change("Keeping it…", async () => {
      const { waiting } = await call("POST", `inbox/${id}`, { label: name.value.trim() });
      return `Kept input ${id} as an example of ${name.value.trim()}; ${waiting} waiting.`;
    }))),
    button("Dismiss", () => change("Dismissing…", async () => {
      await call("DELETE", `inbox/${id}`);
      return `Dismissed input ${id}.`;
    })),
  );
}
