// How to search: mode, languages of the results, reranking. Built once, then kept as the address says.
import { ask, read } from "./address.js";
import { byId, element } from "./dom.js";
import { direction, englishName, nativeName } from "./languages.js";

const MODES = {
  hybrid: ["Hybrid", "By meaning and by words"],
  dense: ["Dense", "By meaning: any language finds any language"],
  lexical: ["Lexical", "By words: BM25"],
};
const SHOWN = 14; // languages shown before "more"

function modes(known) {
  return element("fieldset.modes", {}, element("legend.unseen", {}, "Mode"), ...known.map((mode) => {
    const [label, title] = MODES[mode] ?? [mode, mode];
    const radio = element("input", { type: "radio", name: "mode", value: mode, onchange: () => ask({ mode: mode === known[0] ? "" : mode }) });
    return element("label", { title }, radio, element("span", {}, label));
  }));
}

function chip(name, title, count, press) {
  return element("button.chip", { type: "button", "aria-pressed": "false", title, onclick: press }, name,
    count === null ? null : element("span.count", { dir: "ltr" }, count.toLocaleString("en")));
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
export function buildFilters({ modes: known, languages, rerank }) {
  const sorted = Object.entries(languages).sort(([one, n], [other, m]) => m - n || one.localeCompare(other));
  const chips = element("div.chips", { role: "group", "aria-label": "Languages of the results" },
    Object.assign(chip("Any language", "", null, () => ask({ langs: [], same: false })), { id: "any-language" }),
    Object.assign(chip("Same as question", "Only results in the language of the question", null,
      () => ask({ same: !read().same, langs: [] })), { id: "same-language" }),
    ...sorted.map(([lang, count]) => languageChip(lang, count)));
  const rare = [...chips.querySelectorAll("[data-lang]")].slice(SHOWN);
  if (rare.length > 1) {
    rare.forEach((one) => one.classList.add("rare"));
    const all = element("button.chip.all", { type: "button", "aria-expanded": "false", onclick: () => {
      chips.classList.add("open");
      all.remove();
      rare[0].focus();
    } }, `${rare.length} more`);
    chips.append(all);
  }
  const switches = rerank ? element("label.switch", { title: "Score the first results again with the slower, finer model" },
    element("input", { type: "checkbox", id: "rerank", onchange: (event) => ask({ rerank: event.target.checked }) }), element("span", {}, "Rerank")) : null;
  byId("filters").replaceChildren(element("div.ways", {}, modes(known), switches ?? ""), chips);
  byId("filters").hidden = false;
}

/** Show what the address says; `known` are the modes of the index, the first of them the one that needs no saying. */
export function showFilters(state, known) {
  const filters = byId("filters");
  const chips = filters.querySelector(".chips");
  for (const radio of filters.querySelectorAll("[name=mode]")) radio.checked = radio.value === (state.mode || known[0]);
  for (const lang of state.langs) { // a language of a link that the index no longer has can be taken away too
    if (chips && ![...chips.children].some((one) => one.dataset.lang === lang)) chips.append(languageChip(lang, 0));
  }
  for (const one of filters.querySelectorAll("[data-lang]")) one.setAttribute("aria-pressed", String(state.langs.includes(one.dataset.lang)));
  byId("any-language")?.setAttribute("aria-pressed", String(!state.same && state.langs.length === 0));
  const same = byId("same-language");
  if (same) {
    same.hidden = state.view === "compare";
    same.setAttribute("aria-pressed", String(state.same));
  }
  const rerank = byId("rerank");
  if (rerank) rerank.checked = state.rerank;
}
