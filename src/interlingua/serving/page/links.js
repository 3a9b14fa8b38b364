// Lines between the cards of a passage that both rankings have.
import { byId } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
let lines = []; // {path, ends: [card of the left list, card of the right list]}

function place() {
  const area = byId("links").getBoundingClientRect();
  const middle = (card) => card.getBoundingClientRect().top + card.getBoundingClientRect().height / 2 - area.top;
  for (const { path, ends } of lines) {
    const sides = ends.map(middle);
    const [from, to] = document.documentElement.dir === "rtl" ? sides.reverse() : sides; // the first list is on the right
    path.setAttribute("d", `M0 ${from}C${area.width / 2} ${from} ${area.width / 2} ${to} ${area.width} ${to}`);
  }
}

const moves = new ResizeObserver(place);

export function forgetLinks() {
  moves.disconnect();
  lines = [];
  byId("links").replaceChildren();
}

/** Draw a line for each of `pairs` ([place on the left, place on the right]); the pointer or the focus on a card lights its own. */
export function link(pairs) {
  forgetLinks();
  const lists = ["results-a", "results-b"].map(byId);
  lines = pairs.map((pair) => {
    const ends = pair.map((row, side) => lists[side].children[row]);
    const path = document.createElementNS(SVG, "path");
    let [pointed, focused] = [false, false]; // a focus that scrolls the page takes the card from under the pointer: it stays lit
    const light = () => [path, ...ends].forEach((one) => one.classList.toggle("lit", pointed || focused));
    for (const end of ends) {
      end.addEventListener("pointerenter", () => { pointed = true; light(); });
      end.addEventListener("pointerleave", () => { pointed = false; light(); });
      end.addEventListener("focusin", () => { focused = true; light(); });
      end.addEventListener("focusout", () => { focused = false; light(); });
    }
    return { path, ends };
  });
  byId("links").append(...lines.map(({ path }) => path));
  lists.forEach((list) => moves.observe(list)); // says the first size at once
}
