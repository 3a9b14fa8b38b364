// The first view: one question, one list.
import { MOST, ask, go } from "./address.js";
import { search } from "./api.js";
import { card, offerWholeTexts } from "./card.js";
import { byId } from "./dom.js";
import { isolated, nativeName } from "./languages.js";
import { failure, noNotice, notice } from "./notice.js";

const plural = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;

function summary(answer) {
  const langs = new Set(answer.hits.map((hit) => hit.lang));
  const found = plural(answer.hits.length, "passage") + (langs.size > 1 ? ` in ${plural(langs.size, "language")}` : "");
  const read = answer.lang ? ` · question read as ${isolated(nativeName(answer.lang))}` : "";
  return [`${found}${read} · ${Math.max(1, Math.round(answer.took_ms))} ms`, ...answer.notices].join(" · ");
}

function nothing(state) {
  const actions = [];
  if (state.langs.length || state.same) actions.push(["Search every language", () => ask({ langs: [], same: false })]);
  if (state.mode === "lexical") actions.push(["Search by meaning too", () => ask({ mode: "" })]);
  notice("Nothing found", state.mode === "lexical" ? "No passage has these words." : "No passage answers this question here.", ...actions);
}

export function clearSearch() {
  byId("results").replaceChildren();
  byId("results").removeAttribute("aria-busy");
  byId("more-results").hidden = true;
  byId("summary").textContent = "";
  noNotice();
}

/** Search and show; whatever was shown stays, dimmed, until the answer is there. `signal` ends a question overtaken. */
export async function showSearch(state, signal) {
  const results = byId("results");
  const before = results.dataset.question === state.q ? results.children.length : 0;
  noNotice();
  results.setAttribute("aria-busy", "true");
  byId("summary").textContent = "Searching …";
  try {
    const answer = await search(state.q, state, signal, (seconds) => {
      byId("summary").textContent = `The search service is busy; asking again in ${seconds} s …`;
    });
    results.dataset.question = state.q;
    results.replaceChildren(...answer.hits.map((hit) => card(hit)));
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
    const plain = { mode: "", langs: [], same: false, rerank: false };
    const special = state.mode || state.langs.length || state.same || state.rerank;
    failure(error, () => go({}), ...(special ? [["Search without filters", () => ask(plain)]] : []));
  } finally {
    if (!signal.aborted) results.removeAttribute("aria-busy");
  }
}
