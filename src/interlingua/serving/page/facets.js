// Values of metadata to narrow the results by, with the number of passages that have them.
import { ask, read } from "./address.js";
import { byId, element } from "./dom.js";
import { count as number } from "./messages.js";

const OWN = new Set(["source", "chunk", "url", "title"]); // of one document or passage: each card shows them
const ASKED = 8; // keys that are counted
const SHOWN = 8; // values of a key
const COUNTED = 50; // values of a key that the search service counts

/** What an object itself has under a key: keys and values of metadata may be called "constructor". */
const own = (object, key, without) => (Object.hasOwn(object ?? {}, key) ? object[key] : without);

/** The keys to count, those that are chosen from among them. */
export function facetKeys(state, fields) {
  const chosen = Object.keys(state.where).filter((key) => fields.includes(key));
  return [...new Set([...chosen, ...fields.filter((key) => !OWN.has(key))])].slice(0, ASKED);
}

/** The values of each key to show, as [value, count]: those chosen, and the others where they divide the passages. */
export function worthShowing(counts, chosen) {
  const values = Object.entries(counts).sort(([, n], [, m]) => m - n); // numbers come in their own order
  const others = values.length > 1 && values.some(([, count]) => count > 1) ? values : values.filter(([value]) => chosen.includes(value));
  const none = values.length && values.length < COUNTED ? 0 : null; // null: it was not counted
  const gone = chosen.filter((value) => !Object.hasOwn(counts, value)).map((value) => [value, none]);
  const first = others.filter(([value], place) => place < SHOWN || chosen.includes(value));
  return [...gone, ...first];
}

function press(key, value) {
  const { where } = read();
  const before = own(where, key, []);
  const { [key]: _, ...others } = where;
  const values = before.includes(value) ? before.filter((one) => one !== value) : [...before, value];
  ask({ where: values.length ? { ...others, [key]: values } : others });
}

/** Chips by key of metadata; `facets` as the answer gives them. */
export function showFacets(facets, state) {
  const keys = [...new Set([...Object.keys(state.where), ...Object.keys(facets ?? {})])];
  const groups = keys.map((key) => {
    const chosen = own(state.where, key, []);
    const chips = worthShowing(own(facets, key, {}), chosen).map(([value, count]) => element("button.chip",
      { type: "button", "aria-pressed": String(chosen.includes(value)), "data-value": value, onclick: () => press(key, value) },
      element("span", { dir: "auto" }, value || "–"), count === null ? null : element("span.count", { dir: "ltr" }, number(count))));
    return chips.length ? element("div.chips", { role: "group", "aria-label": key, "data-key": key }, element("span.key", { dir: "auto" }, key), ...chips) : null;
  });
  byId("facets").replaceChildren(...groups.filter(Boolean));
}
