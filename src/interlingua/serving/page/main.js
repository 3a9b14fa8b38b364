// The address says what to show; this draws it. Everything that a reader does changes the address.
import { ask, format, go, read } from "./address.js";
import { info } from "./api.js";
import { clearCompare, showCompare } from "./compare.js";
import { byId } from "./dom.js";
import { buildFilters, showFilters } from "./filters.js";
import { listenToKeys } from "./keys.js";
import { failure } from "./notice.js";
import { clearSearch, showSearch } from "./results.js";

const WELCOME = {
  search: ["Ask in any language", ""],
  compare: ["One question, two languages", "Write the same question twice. Where the two rankings agree, the language of the question does not matter."],
};
let about = null; // GET /info
let running = new AbortController();

function welcome(state, asked) {
  const [title, text] = WELCOME[state.view];
  const languages = Object.keys(about?.languages ?? {}).length;
  const size = about ? `${about.passages.toLocaleString("en")} passages in ${languages} ${languages === 1 ? "language" : "languages"}. Answers come in whichever says it best.` : "";
  byId("welcome").hidden = asked;
  byId("welcome-title").textContent = title;
  byId("welcome-text").textContent = text || size;
}

function draw() {
  const state = read();
  const compare = state.view === "compare";
  running.abort();
  running = new AbortController();
  document.body.dataset.view = state.view;
  byId("search-form").hidden = compare;
  byId("compare-form").hidden = !compare;
  for (const [id, value] of [["question", state.q], ["question-a", state.a], ["question-b", state.b]]) {
    if (byId(id).value.trim() !== value) byId(id).value = value;
  }
  byId("to-search").href = format({ ...state, view: "search", q: state.q || state.a });
  byId("to-compare").href = format({ ...state, view: "compare", a: state.a || state.q, same: false });
  byId(compare ? "to-compare" : "to-search").setAttribute("aria-current", "page");
  byId(compare ? "to-search" : "to-compare").removeAttribute("aria-current");
  const asked = compare ? Boolean(state.a && state.b) : Boolean(state.q);
  const question = compare ? [state.a, state.b].filter(Boolean).join(" | ") : state.q;
  document.title = question ? `${question} – interlingua` : "interlingua";
  welcome(state, asked);
  clearOther(compare, asked);
  if (about) showFilters(state, about.modes);
  else learn(asked);
  if (asked) (compare ? showCompare : showSearch)(state, running.signal);
}

/** What the index holds. Without it the page has no filters; a question that is asked tells what is wrong by itself. */
async function learn(asked) {
  try {
    about = await info();
  } catch (error) {
    if (!asked) failure(error, () => go({}));
    return;
  }
  buildFilters(about);
  byId("about").textContent = [`${about.passages.toLocaleString("en")} passages`, about.model].filter(Boolean).join(" · ");
  showFilters(read(), about.modes);
  welcome(read(), byId("welcome").hidden);
}

/** Results of the view that is not shown, and of a question that is no longer asked, go. */
function clearOther(compare, asked) {
  if (compare || !asked) clearSearch();
  if (!compare || !asked) clearCompare();
}

function start() {
  window.addEventListener("hashchange", draw);
  listenToKeys();
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask({ q: byId("question").value.trim() });
  });
  byId("compare-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const [a, b] = ["question-a", "question-b"].map((id) => byId(id).value.trim());
    ask({ a, b });
    if (!a || !b) byId(a ? "question-b" : "question-a").focus();
  });
  draw();
}

start();
