// The second view: the same question in two languages, and how alike the two rankings are.
import { search } from "./api.js";
import { go } from "./address.js";
import { badge, card } from "./card.js";
import { byId, element } from "./dom.js";
import { forgetLinks, link } from "./links.js";
import { say } from "./messages.js";
import { failure, noNotice } from "./notice.js";
import { rankBiasedOverlap, shared } from "./overlap.js";

const SIDES = ["a", "b"];

export function clearCompare() {
  byId("comparison").hidden = true;
  byId("comparison").removeAttribute("aria-busy");
  forgetLinks();
  noNotice();
  byId("summary").textContent = "";
}

/** Which language the question was read as, and the languages of its results, most first. */
function asked(answer) {
  const counts = new Map();
  for (const { lang } of answer.hits) counts.set(lang, (counts.get(lang) ?? 0) + 1);
  const sorted = [...counts].sort(([, n], [, m]) => m - n);
  const languages = sorted.map(([lang, count]) => element("span.tally", {}, badge(lang), ` ${count}`));
  return [element("span.read-as", {}, answer.lang ? badge(answer.lang) : say("question"), ":"), ...languages];
}

function measures(first, second, pairs) {
  const depth = Math.max(first.length, second.length);
  const percent = depth ? Math.round((100 * pairs.length) / depth) : 0;
  const bar = element("span.bar", { "aria-hidden": "true" }, ...Array.from({ length: depth }, (_, place) => element(place < pairs.length ? "i.both" : "i")));
  return [
    element("p", {}, element("strong", { id: "shared-count" }, `${pairs.length} of ${depth}`), ` passages shared, `, element("strong", { id: "shared-percent" }, `${percent}%`)),
    bar,
    element("p", { title: "Agreement of the two orders: 1 is the same order, 0 nothing in common; the first ranks count most (p = 0.9)" },
      "rank-biased overlap ", element("strong", { id: "rbo" }, rankBiasedOverlap(first, second).toFixed(2))),
  ];
}

/** The cards of one side; a shared passage says its rank on the other side and leads there. */
function column(side, answer, partners) {
  const other = side === "a" ? "b" : "a";
  return answer.hits.map((hit, place) => {
    const partner = partners.get(place);
    if (partner === undefined) return card(hit, []);
    const jump = () => byId(`results-${other}`).children[partner].querySelector("article").focus();
    const also = element("button.also", { type: "button", onclick: jump, "aria-label": `Also at rank ${partner + 1} of the other question; go there` }, `also at ${partner + 1}`);
    const made = card(hit, [also]);
    made.classList.add("shared");
    return made;
  });
}

export async function showCompare(state, signal) {
  const view = byId("comparison");
  noNotice();
  view.setAttribute("aria-busy", "true");
  const other = new AbortController(); // where one side fails the other need not go on
  byId("summary").textContent = say("searching");
  try {
    const both = { ...state, same: false, documents: false, where: {} };
    const answers = await Promise.all(SIDES.map((side) => search(state[side], both, AbortSignal.any([signal, other.signal]), (seconds) => {
      byId("summary").textContent = say("busy", { n: seconds });
    })));
    const [first, second] = answers.map((answer) => answer.hits.map((hit) => JSON.stringify([hit.index, hit.source, hit.id])));
    const pairs = shared(first, second);
    byId("overlap").replaceChildren(...measures(first, second, pairs));
    SIDES.forEach((side, number) => {
      byId(`asked-${side}`).replaceChildren(...asked(answers[number]));
      byId(`results-${side}`).replaceChildren(...column(side, answers[number], new Map(pairs.map((pair) => [pair[number], pair[1 - number]]))));
    });
    const took = Math.max(1, ...answers.map((answer) => Math.round(answer.took_ms)));
    byId("summary").textContent = `First ${state.k} of each question · ${took} ms`;
    view.hidden = false;
    link(pairs);
  } catch (error) {
    if (signal.aborted) return;
    other.abort();
    clearCompare();
    failure(error, () => go({}));
  } finally {
    if (!signal.aborted) view.removeAttribute("aria-busy");
  }
}
