// All heads of a server: each links to its own page.

import { call, token } from "./api.js";
import { ask } from "./edit.js";
import { make, plural, showStatus } from "./views.js";

const byId = (id) => document.getElementById(id);
const state = { heads: [], next: "", reading: false };
const wanted = () => byId("find").value.trim().toLowerCase();

function tell(error) {
  if (error.status === 401) byId("token-form").hidden = false;
  showStatus(error.message, "failed");
}

async function doing(words, work) {
  showStatus(words, "busy");
  try {
    showStatus(await work());
  } catch (error) {
    tell(error);
  }
}

const facts = ({ version, classes, waiting }) => {
  if (version === null) return "cannot be read";
  const known = version ? `${plural(classes, "class")}, version ${version}` : "knows nothing yet";
  return waiting ? `${known}, ${waiting} waiting` : known;
};

function show() {
  const found = state.heads.filter(({ name }) => name.toLowerCase().includes(wanted()));
  byId("heads").replaceChildren(...found.map((head) => {
    const remove = make("button", { type: "button", textContent: "Delete", className: "danger", ariaLabel: `Delete ${head.name}` });
    remove.onclick = () => removeHead(head.name);
    const link = make("a", { textContent: head.name, href: `heads/${head.name}/` });
    return make("li", {}, link, make("small", { textContent: facts(head) }), remove);
  }));
  byId("names").replaceChildren(...state.heads.map(({ name }) => make("option", { value: name })));
  byId("more").hidden = state.next === null;
  byId("find").hidden = state.heads.length < 10;
}

async function read(after = "", limit = 100) {
  const { heads, next } = await call("GET", `heads?limit=${limit}&after=${encodeURIComponent(after)}`);
  state.heads = after ? [...state.heads, ...heads] : heads;
  state.next = next;
  show();
  if (next && wanted()) return read(next, 1000); // who looks for a head means any of them
  return state.heads.length ? `${plural(state.heads.length, "head")}${next ? " shown" : ""}.` : "No head yet: make one.";
}

async function removeHead(name) {
  const words = `Delete ${name}? Its examples, versions and tokens are deleted for good.`;
  if (!await ask(words, "Delete it", "danger")) return;
  await doing(`Deleting ${name}…`, async () => {
    await call("DELETE", `heads/${name}`);
    await read();
    return `${name} is deleted.`;
  });
}

byId("make-form").onsubmit = (event) => {
  event.preventDefault();
  const [name, source] = [byId("name").value.trim(), byId("source").value.trim()];
  doing(`Making ${name}…`, async () => {
    await call("POST", "heads", source ? { name, copy_of: source } : { name });
    byId("make-form").reset();
    await read();
    return source ? `${name} is a copy of ${source}.` : `${name} is made.`;
  });
};

async function readMore(limit) {
  if (!state.next || state.reading) return;
  state.reading = true;
  await doing("Reading…", () => read(state.next, limit));
  state.reading = false;
}

byId("find").oninput = () => {
  show();
  if (wanted()) readMore(1000);
};
byId("more").onclick = () => readMore(100);

byId("token-form").onsubmit = (event) => {
  event.preventDefault();
  token.set(byId("token").value);
  byId("token").value = "";
  byId("token-form").hidden = true;
  doing("Reading…", () => read());
};

byId("token-form").hidden = Boolean(token.get());
doing("Reading…", () => read());
