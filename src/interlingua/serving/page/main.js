// The address says what to show; this draws it. Everything that a reader does changes the address.
import { ask, format, go, read } from "./address.js";
import { info } from "./api.js";
import { clearCompare, showCompare } from "./compare.js";
import { byId, element } from "./dom.js";
import { buildFilters, showFilters } from "./filters.js";
import { contents } from "./indexes.js";
import { listenToKeys } from "./keys.js";
import { direction, nativeName } from "./languages.js";
import { MESSAGES, language, say, speak } from "./messages.js";
import { failure } from "./notice.js";
import { clearSearch, showSearch } from "./results.js";

const WELCOME = {
  search: [say("welcome"), ""],
  compare: [say("welcome2"), say("text2")],
};
let about = null; // GET /info
let running = new AbortController();
const drawn = {}; // what the address said last of each question

function welcome(state, asked) {
  const [title, text] = WELCOME[state.view];
  const languages = Object.keys(about?.languages ?? {}).filter(Boolean).length;
  const size = about ? say("size", { passages: say("passages", { n: about.passages }), languages: say("languages", { n: languages }) }) : "";
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
    if (drawn[id] !== value && byId(id).value.trim() !== value) byId(id).value = value;
    drawn[id] = value; // one that is typed and not sent yet stays when something else changes
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
  if (about) showFilters(state, about);
  show(state, asked, about ? null : learn(asked), running.signal);
}

/** Search when it is known what there is to be counted. */
async function show(state, asked, learning, signal) {
  await learning;
  if (!asked || signal.aborted) return;
  if (state.view === "compare") showCompare(state, signal);
  else showSearch(state, signal, about ? contents(about, state.indexes).fields : []);
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
  byId("about").textContent = [say("passages", { n: about.passages }), about.model].filter(Boolean).join(" · ");
  showFilters(read(), about);
  welcome(read(), byId("welcome").hidden);
}

/** Results of the view that is not shown, and of a question that is no longer asked, go. */
function clearOther(compare, asked) {
  if (compare || !asked) clearSearch();
  if (!compare || !asked) clearCompare();
}

/** Put the reader's language in the place of the English of index.html, and offer the others. */
function translate() {
  document.documentElement.lang = language;
  document.documentElement.dir = direction(language);
  for (const one of document.querySelectorAll("[data-say]")) one.textContent = say(one.dataset.say);
  for (const one of document.querySelectorAll("[data-placeholder]")) one.placeholder = say(one.dataset.placeholder);
  for (const one of document.querySelectorAll("[data-label]")) one.setAttribute("aria-label", say(one.dataset.label));
  const options = Object.keys(MESSAGES).map((code) => element("option", { value: code, lang: code, selected: code === language }, nativeName(code)));
  byId("page-language").append(...options);
  byId("page-language").addEventListener("change", (event) => speak(event.target.value));
}

function start() {
  translate();
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
