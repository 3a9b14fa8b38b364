// What is asked stands in the address, and only there: a link can be sent, and the back button works.

const FIRST = 10;
export const MOST = 100;

const EMPTY = { view: "search", q: "", a: "", b: "", mode: "", indexes: [], langs: [], same: false, rerank: false, documents: false, where: {}, k: FIRST };

/** Values by key of metadata, from JSON in an address: `{"topic": ["storm"]}`; what is nothing of the kind is left out. */
function chosen(text) {
  try {
    const lists = Object.entries(JSON.parse(text)).filter(([, values]) => Array.isArray(values) && values.length && values.every((one) => typeof one === "string"));
    return Object.fromEntries(lists);
  } catch {
    return {};
  }
}

/** The state that an address says; what is missing or makes no sense is as in `EMPTY`. */
export function read(hash = location.hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const text = (name) => said.get(name) ?? "";
  const count = Number.parseInt(text("k"), 10);
  return {
    view: text("view") === "compare" ? "compare" : "search",
    q: text("q").trim(), a: text("a").trim(), b: text("b").trim(),
    mode: text("mode"),
    indexes: text("indexes").split(",").filter(Boolean),
    langs: text("langs").split(",").filter(Boolean),
    same: text("same") === "1",
    rerank: text("rerank") === "1",
    documents: text("documents") === "1",
    where: chosen(text("where") || "{}"),
    k: Number.isInteger(count) ? Math.min(MOST, Math.max(1, count)) : FIRST,
  };
}

export function format(state) {
  const said = new URLSearchParams();
  for (const [name, empty] of Object.entries(EMPTY)) {
    let value = Array.isArray(empty) ? state[name].join(",") : state[name];
    if (name === "where") value = Object.keys(value).length ? JSON.stringify(value) : "";
    if (value && value !== empty) said.set(name, value === true ? "1" : value);
  }
  return `#${said}`;
}

/** Change the state. The page is drawn again by the event "hashchange", as when someone follows a link. */
export function go(changes) {
  const hash = format({ ...read(), ...changes });
  if (hash === (location.hash || "#")) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

/** A new question starts with the first results again. */
export const ask = (changes) => go({ k: FIRST, ...changes });
