// The calls that the page makes, and what can go wrong with them.
import { say } from "./messages.js";

const PATIENCE = 3; // times that a busy server is asked again without a word from the reader
const TOKEN = "interlingua-token"; // kept until the tab is closed

/** `kind`: "network" (no answer), "busy" (503), "locked" (401), "refused" (other 4xx), "broken" (anything else). */
export class ServiceError extends Error {
  constructor(kind, message, seconds = 0) {
    super(message);
    this.kind = kind;
    this.seconds = seconds;
  }
}

let given = ""; // where the browser keeps nothing for this page

/** The token for reading, which servers that are not open to all ask for. */
export function useToken(token) {
  given = token;
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    return; // it is known until the page is loaded anew
  }
}

function kept() {
  try {
    return sessionStorage.getItem(TOKEN) ?? given;
  } catch {
    return given;
  }
}

async function call(path, { headers, ...options } = {}) {
  const token = kept();
  if (token && !/^[\x21-\x7e]+$/.test(token)) throw new ServiceError("locked", say("tokenWrong")); // no header can hold it
  let response;
  try {
    response = await fetch(path, { cache: "no-store", headers: { ...headers, ...(token && { Authorization: `Bearer ${token}` }) }, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("network", say("noNetwork"));
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error; // else: no JSON, said below
  }
  if (response.ok && body) return body;
  const words = body?.error?.message;
  if (response.status === 503 || response.status === 429) {
    const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
    throw new ServiceError("busy", words || "The search service is busy.", seconds >= 0 ? Math.min(seconds, 30) : 2);
  }
  if (response.status === 401) {
    throw new ServiceError("locked", say(token ? "tokenWrong" : "tokenAsked"));
  }
  if (response.status >= 400 && response.status < 500) {
    throw new ServiceError("refused", words || `The search service refuses this question (${response.status}).`);
  }
  throw new ServiceError("broken", words || `The search service answers in a way this page does not understand (${response.status}).`);
}

const pause = (seconds, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, seconds * 1000);
  signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
});

export const info = () => call("./info");

/** The document of a hit: `around` passages before and after it. */
export function documentOf({ index, source, id }, around) {
  const name = encodeURIComponent(source && !id.startsWith(source) ? `${source}:${id}` : id);
  return call(`./${index ? `indexes/${index}/` : ""}documents/${name}?around=${around}`);
}

/**
 * Ask `question` as `state` says, and count the values of the metadata `facets`. A busy server is asked again when it
 * says so; `onwait` hears the seconds.
 */
export async function search(question, state, signal, onwait = () => {}, facets = []) {
  const asked = {
    query: question, k: state.k, highlight: true, distinct: true,
    langs: state.langs.length ? state.langs : null,
    lang_of_results: state.same ? "same" : "any",
    ...(state.indexes.length && { indexes: state.indexes }),
    ...(state.mode && { mode: state.mode }),
    ...(state.rerank && { rerank: true }),
    ...(state.documents && { group_by: "document" }),
    ...(Object.keys(state.where).length && { where: { all: Object.entries(state.where).map(([key, values]) => ({ [key]: values })) } }),
    ...(facets.length && { facets }),
  };
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), signal };
  for (let attempt = 0; ; attempt++) {
    try {
      return await call("./search", options);
    } catch (error) {
      if (error.kind !== "busy" || attempt === PATIENCE) throw error;
      onwait(error.seconds);
      await pause(error.seconds, signal);
    }
  }
}
