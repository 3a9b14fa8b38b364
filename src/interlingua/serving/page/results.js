// The first view: one question, one list.
import { MOST, ask, go } from "./address.js";
import { search } from "./api.js";
import { card, offerMore, offerWholeTexts } from "./card.js";
import { facetKeys, showFacets } from "./facets.js";
import { byId } from "./dom.js";
import { isolated, nativeName } from "./languages.js";
import { say } from "./messages.js";
import { failure, noNotice, notice } from "./notice.js";

function summary(answer) {
  const langs = new Set(answer.hits.map((hit) => hit.lang));
  const passages = say("passages", { n: answer.hits.length });
  const found = langs.size > 1 ? say("in", { passages, languages: say("languages", { n: langs.size }) }) : passages;
  const read = answer.lang ? ` · ${say("read", { lang: isolated(nativeName(answer.lang)) })}` : "";
  return [`${found}${read} · ${Math.max(1, Math.round(answer.took_ms))} ms`, ...answer.notices].join(" · ");
}

/** The card of a hit, and of its file what else was found. */
function found(hit, state, signal) {
  const made = card(hit);
  const further = async () => {
    const inside = { ...state, indexes: hit.index ? [hit.index] : [], documents: false, where: { ...state.where, source: [hit.group] }, k: Math.min(MOST, hit.more + 1) };
    try {
      return (await search(state.q, inside, signal)).hits.filter((one) => one.id !== hit.id);
    } catch (error) {
      if (!signal.aborted) failure(error, () => go({}));
      return [];
    }
  };
  if (hit.more && hit.group === hit.source) offerMore(made, hit, further); // rows have no key to search in
  return made;
}

function nothing(state) {
  const actions = Object.keys(state.where).length ? [[say("allValues"), () => ask({ where: {} })]] : [];
  if (state.indexes.length) actions.push([say("allIndexes"), () => ask({ indexes: [] })]);
  if (state.langs.length || state.same) actions.push([say("everyLanguage"), () => ask({ langs: [], same: false })]);
  if (state.mode === "lexical") actions.push([say("byMeaning"), () => ask({ mode: "" })]);
  notice(say("nothing"), say(state.mode === "lexical" ? "noWords" : "noAnswer"), ...actions);
}

export function clearSearch() {
  byId("results").replaceChildren();
  byId("results").removeAttribute("aria-busy");
  byId("more-results").hidden = true;
  showFacets({}, { where: {} });
  byId("summary").textContent = "";
  noNotice();
}

/** Search and show; whatever was shown stays, dimmed, until the answer is there. `signal` ends a question overtaken. */
export async function showSearch(state, signal, fields = []) {
  const results = byId("results");
  const before = results.dataset.question === state.q ? results.children.length : 0;
  noNotice();
  results.setAttribute("aria-busy", "true");
  byId("summary").textContent = say("searching");
  try {
    const wait = (seconds) => { byId("summary").textContent = say("busy", { n: seconds }); };
    const keys = facetKeys(state, fields);
    const answer = await search(state.q, state, signal, wait, keys).catch((error) => {
      if (error.kind !== "refused" || !keys.length) throw error;
      return search(state.q, state, signal, wait); // a key to count may be gone since the page was opened
    });
    results.dataset.question = state.q;
    results.replaceChildren(...answer.hits.map((hit) => found(hit, state, signal)));
    showFacets(answer.facets, state);
    offerWholeTexts(results);
    byId("summary").textContent = answer.hits.length ? summary(answer) : "";
    if (!answer.hits.length) nothing(state);
    const more = byId("more-results");
    const wasOnMore = document.activeElement === more;
    more.hidden = answer.hits.length < state.k || state.k >= MOST;
    more.onclick = () => go({ k: Math.min(MOST, state.k + 10) });
    if (wasOnMore) results.children[before]?.querySelector("article").focus({ preventScroll: !more.hidden });
  } catch (error) {
    if (signal.aborted) return;
    clearSearch();
    const plain = { mode: "", indexes: [], langs: [], same: false, rerank: false, documents: false, where: {} };
    const special = state.mode || state.indexes.length || state.langs.length || state.same || state.rerank || state.documents || Object.keys(state.where).length;
    failure(error, () => go({}), ...(special ? [[say("noFilters"), () => ask(plain)]] : []));
  } finally {
    if (!signal.aborted) results.removeAttribute("aria-busy");
  }
}
