// Where to search, on a server of several indexes: chips with their names, and what those that are chosen hold.
import { ask, read } from "./address.js";
import { element } from "./dom.js";
import { count as number, say } from "./messages.js";

/** Passages by language and the keys of metadata of the `chosen` indexes, of all where none is; `about` is GET /info. */
export function contents(about, chosen = []) {
  const wanted = (about.indexes ?? []).filter((one) => chosen.includes(one.name));
  if (!wanted.length) return { languages: about.languages, fields: about.fields ?? [] };
  const languages = {};
  for (const one of wanted) {
    for (const [lang, count] of Object.entries(one.languages)) languages[lang] = (languages[lang] ?? 0) + count;
  }
  return { languages, fields: [...new Set(wanted.flatMap((one) => one.fields))].sort() };
}

/** What changes with another choice: languages and metadata that are in none of those chosen are asked for no more. */
export function choice(state, about, indexes) {
  const { languages, fields } = contents(about, indexes);
  return {
    indexes,
    langs: state.langs.filter((lang) => Object.hasOwn(languages, lang)),
    where: Object.fromEntries(Object.entries(state.where).filter(([key]) => fields.includes(key))),
  };
}

function turned(about, name) {
  const state = read();
  const without = state.indexes.filter((one) => one !== name);
  const known = without.filter((one) => about.indexes.some((card) => card.name === one));
  ask(choice(state, about, state.indexes.includes(name) ? known : [...known, name]));
}

function chip(name, count, press) {
  return element("button.chip", { type: "button", "aria-pressed": "false", onclick: press }, element("span", { dir: "auto" }, name),
    count === null ? null : element("span.count", { dir: "ltr" }, number(count)));
}

/** A row of chips; null where there is one index only. */
export function indexChips(about) {
  if ((about.indexes ?? []).length < 2) return null;
  const all = Object.assign(chip(say("allIndexes"), null, () => ask(choice(read(), about, []))), { id: "all-indexes" });
  return element("div.chips.indexes", { role: "group", "aria-label": "Collections to search" }, all, ...about.indexes.map((one) => {
    const made = chip(one.name, one.passages, () => turned(about, one.name));
    made.dataset.index = one.name;
    return made;
  }));
}

/** Show the choice that the address says on the chips among `filters`. */
export function showIndexes(filters, state) {
  for (const one of filters.querySelectorAll("[data-index]")) one.setAttribute("aria-pressed", String(state.indexes.includes(one.dataset.index)));
  filters.querySelector("#all-indexes")?.setAttribute("aria-pressed", String(state.indexes.length === 0));
}
