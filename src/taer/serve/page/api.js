// Requests to the service this page came from. A refusal is thrown as its sentence.

const stored = "taer-token";

const fromAddress = new URLSearchParams(location.hash.slice(1)).get("token");
if (fromAddress) {
  sessionStorage.setItem(stored, fromAddress);
  history.replaceState(null, "", location.pathname); // it should not stay in the address bar
}

export const token = {
  get: () => sessionStorage.getItem(stored),
  set: (value) => sessionStorage.setItem(stored, value.trim()),
};

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(method, path, body) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refusal(0, "The service does not answer.");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, content.detail ?? `The service answered ${answer.status}.`);
  return content;
}
