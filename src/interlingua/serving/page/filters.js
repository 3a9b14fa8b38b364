// How to search: mode, languages of the results, reranking. Built once, then kept as the address says.
import { ask, read } from "./address.js";
import { byId, element } from "./dom.js";
import { contents, indexChips, showIndexes } from "./indexes.js";
import { direction, englishName, nativeName } from "./languages.js";
import { count as number, say } from "./messages.js";

const MODES = {
  hybrid: ["hybrid", "By meaning and by words"],
  dense: ["dense", "By meaning: any language finds any language"],
  lexical: ["lexical", "By words: BM25"],
};
const SHOWN = 14; // languages shown before "more"

function modes(known) {
  return element("fieldset.modes", {}, element("legend.unseen", {}, "Mode"), ...known.map((mode) => {
    const [label, title] = MODES[mode] ? [say(MODES[mode][0]), MODES[mode][1]] : [mode, mode];
    const radio = element("input", { type: "radio", name: "mode", value: mode, onchange: () => ask({ mode: mode === known[0] ? "" : mode }) });
    return element("label", { title }, radio, element("span", {}, label));
  }));
}

function chip(name, title, count, press) {
  return element("button.chip", { type: "button", "aria-pressed": "false", title, onclick: press }, name,
    count === null ? null : element("span.count", { dir: "ltr" }, number(count)));
}

function languageChip(lang, count) {
  const press = () => {
    const { langs } = read();
    ask({ langs: langs.includes(lang) ? langs.filter((one) => one !== lang) : [...langs, lang], same: false });
  };
  const name = element("span", { lang: lang || undefined, dir: lang ? direction(lang) : "ltr" }, nativeName(lang));
  const made = chip(name, englishName(lang), count, press);
  made.dataset.lang = lang;
  return made;
}

/** Fill the filters from GET /info: languages come with their number of passages, most first. */
export function buildFilters(about) {
  const { modes: known, languages, rerank, fields = [] } = about;
  const sorted = Object.entries(languages).filter(([lang]) => lang).sort(([one, n], [other, m]) => m - n || one.localeCompare(other));
  const chips = element("div.chips.languages", { role: "group", "aria-label": "Languages of the results" },
    Object.assign(chip(say("any"), "", null, () => ask({ langs: [], same: false })), { id: "any-language" }),
    Object.assign(chip(say("same"), "Only results in the language of the question", null,
      () => ask({ same: !read().same, langs: [] })), { id: "same-language" }),
    ...sorted.map(([lang, count]) => languageChip(lang, count)));
  const rare = [...chips.querySelectorAll("[data-lang]")].slice(SHOWN);
  if (rare.length > 1) {
    rare.forEach((one) => one.classList.add("rare"));
    const all = element("button.chip.all", { type: "button", "aria-expanded": "false", onclick: () => {
      chips.classList.add("open");
      all.remove();
      rare[0].focus();
    } }, say("others", { n: rare.length }));
    chips.append(all);
  }
  const switches = rerank ? element("label.switch", { title: "Score the first results again with the slower, finer model" },
    element("input", { type: "checkbox", id: "rerank", onchange: (event) => ask({ rerank: event.target.checked }) }), element("span", {}, say("rerank"))) : null;
  const documents = fields.includes("source") ? element("label.switch", { title: "Only the best passage of each document" },
    element("input", { type: "checkbox", id: "documents", onchange: (event) => ask({ documents: event.target.checked }) }), element("span", {}, say("documents"))) : null;
  byId("filters").replaceChildren(element("div.ways", {}, modes(known), switches ?? "", documents ?? ""), indexChips(about) ?? "", chips);
  byId("filters").hidden = false;
}

/** Show what the address says. Of the modes the first is the one that needs no saying; languages are those of the indexes chosen. */
export function showFilters(state, about) {
  const known = about.modes;
  const filters = byId("filters");
  const chips = filters.querySelector(".languages");
  showIndexes(filters, state);
  for (const radio of filters.querySelectorAll("[name=mode]")) radio.checked = radio.value === (state.mode || known[0]);
  for (const lang of state.langs) { // a language of a link that the index no longer has can be taken away too
    if (chips && ![...chips.children].some((one) => one.dataset.lang === lang)) chips.append(languageChip(lang, 0));
  }
  const { languages } = contents(about, state.indexes);
  for (const one of filters.querySelectorAll("[data-lang]")) {
    const chosen = state.langs.includes(one.dataset.lang);
    one.setAttribute("aria-pressed", String(chosen));
    one.hidden = !chosen && !Object.hasOwn(languages, one.dataset.lang);
    one.querySelector(".count").textContent = number(languages[one.dataset.lang] ?? 0);
  }
  byId("any-language")?.setAttribute("aria-pressed", String(!state.same && state.langs.length === 0));
  const same = byId("same-language");
  if (same) {
    same.hidden = state.view === "compare";
    same.setAttribute("aria-pressed", String(state.same));
  }
  const documents = byId("documents");
  if (documents) {
    documents.checked = state.documents;
    documents.closest("label").hidden = state.view === "compare";
  }
  const rerank = byId("rerank");
  if (rerank) rerank.checked = state.rerank;
}
