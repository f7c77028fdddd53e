// The OpenAPI description as a page, without anything from elsewhere.

const make = (tag, textContent, ...children) => {
  const element = Object.assign(document.createElement(tag), { textContent });
  element.append(...children);
  return element;
};

const api = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = `${api.info.description} Machine-readable: openapi.json.`;

const resolve = (schema) => (schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema);

function shape(schema, depth = 0) {
  const found = resolve(schema ?? {});
  if (found.anyOf) return shape(found.anyOf[0], depth);
  if (found.enum || found.const) return found.const ?? found.enum.join(" | ");
  if (found.type === "array") return [shape(found.items, depth + 1)];
  if (found.properties) return Object.fromEntries(Object.entries(found.properties).map(([name, value]) => [name, shape(value, depth + 1)]));
  return found.type ?? "any";
}

for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const article = make("article", "", make("h2", "", make("code", `${method.toUpperCase()} ${path}`)));
    article.append(make("p", operation.description ?? ""));
    if (operation.security) article.append(make("p", "Needs the token: Authorization: Bearer TOKEN."));
    const body = operation.requestBody?.content?.["application/json"]?.schema;
    const parameters = (operation.parameters ?? []).filter((parameter) => parameter.in === "query").map(({ name }) => name);
    if (parameters.length) article.append(make("p", `In the query: ${parameters.join(", ")}.`));
    if (body) article.append(make("p", "Takes"), make("pre", JSON.stringify(shape(body), null, 2)));
    const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
    if (answer) article.append(make("p", "Answers"), make("pre", JSON.stringify(shape(answer), null, 2)));
    document.getElementById("paths").append(article);
  }
}
