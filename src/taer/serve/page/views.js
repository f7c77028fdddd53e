// What the service says, as elements. Text is always set as text, never as markup.

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

export function showStatus(words, state = "") {
  byId("status").textContent = words;
  byId("status").parentElement.className = state;
}

export function showBars(predictions, words = "Nothing yet.") {
  const items = (predictions?.[0]?.probabilities ?? []).map(({ label, probability }) => {
    const item = make("li", {}, make("b", { textContent: label }), make("span", { textContent: percent(probability, 1) }));
    item.style.setProperty("--share", percent(probability, 2).replace(" ", ""));
    return item;
  });
  if (predictions?.length > 1) {
    const others = predictions.slice(1).map(({ label }) => label).join(", ");
    items.push(make("li", { className: "none", textContent: `The others: ${others}` }));
  }
  byId("bars").replaceChildren(...(items.length ? items : [make("li", { className: "none", textContent: words })]));
}

export function showThumbs(addresses) {
  byId("thumbs").replaceChildren(...addresses.map((src) => make("img", { src, alt: "" })));
}

export function showClasses({ classes }) {
  const latest = Math.max(0, ...classes.map(({ task }) => task ?? 0));
  byId("classes").replaceChildren(
    ...classes.map(({ label, task, waiting }) => {
      const note = [task === null ? "new" : `task ${task}`, waiting ? `${waiting} waiting` : ""].filter(Boolean).join(", ");
      const className = waiting ? "waiting" : task === latest ? "latest" : "";
      return make("li", { className }, label, make("small", { textContent: note }));
    }),
  );
  byId("labels").replaceChildren(...classes.map(({ label }) => make("option", { value: label })));
  const waiting = classes.filter((entry) => entry.waiting);
  byId("waiting").textContent = waiting.length
    ? `Waiting to be learned: ${waiting.map((entry) => `${entry.waiting} × ${entry.label}`).join(", ")}.`
    : classes.length
      ? "Show it a few examples of something new, name it, then press Learn."
      : "It knows nothing yet. Show it a few examples of two or more things, then press Learn.";
}

export function showHistory({ current, versions }, goTo) {
  const items = versions.toReversed().map((entry) => {
    const { version, new_classes: fresh, accuracy, held_back: held, seconds, created, examples } = entry;
    const names = fresh.length > 8 ? `${fresh.slice(0, 8).join(", ")} and ${fresh.length - 8} more` : fresh.join(", ");
    const what = examples ? (names || "more of known classes") : `started with ${names}`;
    const facts = [
      accuracy === null ? "nothing held back to measure on" : `${percent(accuracy, 1)} of ${held} held back`,
      `${entry.classes} classes`,
      examples ? `${examples} examples learned in ${seconds.toFixed(2)} s` : "",
      new Date(created).toLocaleString([], { dateStyle: "short", timeStyle: "short" }),
    ];
    const track = make("div", { className: "track" }, make("i"));
    track.style.setProperty("--share", percent(accuracy ?? 0, 1).replace(" ", ""));
    const action = version === current
      ? make("em", { textContent: "in use" })
      : make("button", { type: "button", textContent: "Use", onclick: () => goTo(version), ariaLabel: `Use version ${version}` });
    return make(
      "li", { className: version === current ? "current" : "" },
      make("span", { className: "number", textContent: version }), make("span", { className: "what", textContent: what }),
      track, make("small", { textContent: facts.filter(Boolean).join(" · ") }), action,
    );
  });
  byId("history").replaceChildren(
    ...(items.length ? items : [make("li", {}, make("span"), make("span", { className: "what quiet", textContent: "No version yet." }))]),
  );
  const inUse = versions.find(({ version }) => version === current);
  byId("changes").textContent = !inUse
    ? "Nothing yet."
    : inUse.changes
      ? `${inUse.changes.sentence[0].toUpperCase()}${inUse.changes.sentence.slice(1)}.`
      : "It was the first: there were no old classes to change.";
  byId("changes").append(...(inUse?.warnings ?? []).map((warning) => make("span", { textContent: ` ${warning}.` })));
  return inUse;
}

export function showConfusion({ classes, cells }) {
  const total = cells.reduce((sum, { count }) => sum + count, 0);
  byId("confusion-words").textContent = total
    ? `Rows are the truth, columns the answer, both in order of learning; ${total} examples held back.`
    : "No examples were held back yet.";
  const counts = new Map(cells.map(({ truth, answer, count }) => [`${truth}\n${answer}`, count]));
  const rows = classes.map((truth) => classes.map((answer) => counts.get(`${truth}\n${answer}`) ?? 0));
  byId("confusion").replaceChildren(...(!total ? [] : [classes.length > 24 ? heatMap(rows) : table(classes, rows)]));
}

function shade(count, row, right) {
  const share = count / Math.max(1, row.reduce((sum, value) => sum + value, 0));
  return count ? `rgba(var(--${right ? "heat" : "wrong"}), ${0.15 + 0.6 * share})` : "";
}

function table(classes, rows) {
  const head = make("tr", {}, make("th"), ...classes.map((name) => make("th", { scope: "col", title: name }, make("span", { textContent: name }))));
  const body = rows.map((row, i) =>
    make("tr", {}, make("th", { scope: "row", textContent: classes[i], title: classes[i] }), ...row.map((count, j) => {
      const cell = make("td", { textContent: count || "" });
      cell.style.background = shade(count, row, i === j);
      return cell;
    })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function heatMap(rows) {
  const canvas = make("canvas", { width: rows.length, height: rows.length, role: "img", ariaLabel: "Confusion matrix" });
  const paint = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  rows.forEach((row, i) => row.forEach((count, j) => {
    const share = count / Math.max(1, row.reduce((sum, value) => sum + value, 0));
    if (count) paint.fillStyle = `rgba(${style.getPropertyValue(i === j ? "--heat" : "--wrong")}, ${0.2 + 0.8 * share})`;
    if (count) paint.fillRect(j, i, 1, 1);
  }));
  return canvas;
}
