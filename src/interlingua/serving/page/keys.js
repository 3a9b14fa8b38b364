// The keyboard: / to the question, arrows or j and k through the results, Enter for the whole text, Esc to clear.
import { go } from "./address.js";

const LIST = "ol.cards:not(.further)"; // with the further passages of a document among its cards
const cardsIn = (list) => [...list.querySelectorAll("article")].filter((card) => card.checkVisibility());
const lists = () => [...document.querySelectorAll(LIST)].filter((list) => list.checkVisibility() && list.children.length);
const box = () => [...document.querySelectorAll("input[type=search]")].find((input) => input.checkVisibility());

function focusBox() {
  box().focus();
  box().select();
}

/** To the card `step` further down its list; above the first one is the question. */
function move(step) {
  const current = document.activeElement.closest("article");
  const list = current?.closest(LIST) ?? lists()[0];
  if (!list) return false;
  const cards = cardsIn(list);
  const place = current ? cards.indexOf(current) + step : 0;
  if (place < 0) focusBox();
  else cards[Math.min(place, cards.length - 1)].focus();
  return true;
}

/** To the card at the same height of the other list. */
function cross(step) {
  const current = document.activeElement.closest("article");
  const shown = lists();
  const beside = current && shown[shown.indexOf(current.closest(LIST)) + step];
  if (!beside) return false;
  const cards = cardsIn(beside);
  cards[Math.min(cardsIn(current.closest(LIST)).indexOf(current), cards.length - 1)].focus();
  return true;
}

function clear(input) {
  input.value = "";
  go({ "question": { q: "" }, "question-a": { a: "" }, "question-b": { b: "" } }[input.id]);
}

function handle(key, target) {
  const typing = target.matches("input[type=search]");
  const widget = target.matches("input:not([type=search]), select, textarea"); // has arrows of its own
  if (key === "Escape") {
    if (typing) clear(target);
    else focusBox();
    return true;
  }
  if (key === "ArrowDown" && !widget) return move(1);
  if (typing || widget) return false;
  if (key === "/") {
    focusBox();
    return true;
  }
  if (key === "j") return move(1);
  if (key === "k") return move(-1);
  if (!target.closest("article")) return false;
  if (key === "ArrowUp") return move(-1);
  if (key === "ArrowLeft" || key === "ArrowRight") return cross((key === "ArrowLeft") === (document.documentElement.dir !== "rtl") ? -1 : 1);
  if (key === "Enter" && target.matches("article")) {
    target.querySelector(".whole-text, .also")?.click();
    return true;
  }
  return false;
}

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (handle(event.key, event.target)) event.preventDefault();
  });
}
