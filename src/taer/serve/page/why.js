// Why it answered as it did: the runner-up, how usual the sample is, and the nearest examples of both classes.

import { call, token } from "./api.js";
import { make, percent } from "./views.js";

const byId = (id) => document.getElementById(id);

// `items` is what is shown to it, as a request for one answer; null while there is nothing.
export function offerWhy(items, tell) {
  byId("why").hidden = !items;
  byId("reasons").replaceChildren();
  const explain = async () => {
    byId("why").hidden = true;
    try {
      const { predictions: [first] } = await call("POST", "predict", { ...items, preview: true, why: true });
      if (byId("why").onclick === explain) byId("reasons").replaceChildren(...described(first)); // nothing else was shown since
    } catch (error) {
      tell(error);
    }
  };
  byId("why").onclick = explain;
}

function described({ unknown, novelty, why }) {
  const { answer, runner_up: second, limit, as_novel: share } = why;
  const words = [];
  if (second) words.push(`${answer.label} (${percent(answer.probability, 1)}) is ahead of ${second.label} (${percent(second.probability, 1)}).`);
  if (share !== null) words.push(`${percent(share)} of the examples of ${answer.label} looked at least as strange when they came.`);
  if (limit !== null) words.push(`Its strangeness is ${novelty.toPrecision(3)}; ${unknown ? "that is above" : "something new is above"} ${limit.toPrecision(3)}.`);
  const groups = [answer, second].filter((one) => one?.examples.length).map(nearest);
  return [make("p", { className: "quiet", textContent: words.join(" ") }), ...groups];
}

function nearest({ label, examples }) {
  const list = make("ol", { className: "examples" }, ...examples.map(({ id, distance }) => {
    const item = make("li", {}, make("small", { textContent: `distance ${distance.toFixed(2)}` }));
    if (token.get()) call("GET", `examples/${id}`).then((found) => item.prepend(picture(found)), () => {});
    else item.prepend(`example ${id}`);
    return item;
  }));
  return make("div", {}, make("h4", { textContent: `Nearest of ${label}` }), list);
}

const picture = ({ id, image, text }) =>
  image
    ? make("img", { alt: `Example ${id}`, src: `data:image/jpeg;base64,${image}` })
    : make("span", { className: "what", textContent: text ?? `example ${id}` });
