// One passage found.
import { inDocument } from "./document.js";
import { element } from "./dom.js";
import { highlighted } from "./highlight.js";
import { direction, englishName, nativeName } from "./languages.js";
import { language, say } from "./messages.js";

const digits = new Intl.NumberFormat(language, { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const number = (value) => (typeof value === "number" ? digits.format(value) : "–");

export function badge(lang) {
  const tag = lang || undefined;
  return element("span.badge", { lang: tag, dir: lang ? direction(lang) : "ltr", title: englishName(lang) }, nativeName(lang));
}

/** Where the passage is from, its index first where there are several: a link when `source` is a web address (and nothing else that could be followed). */
function source({ index, metadata, same, repeated }) {
  const { source: place, chunk, url, ...others } = metadata ?? {};
  const address = [url, place].find((one) => /^https?:\/\//i.test(one ?? "") && URL.canParse(one));
  const name = place || url;
  const parts = [
    index && element("span", {}, index),
    name && (address
      ? element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, name)
      : element("span", {}, name)),
    chunk && element("span", {}, say("part", { n: chunk })),
    ...Object.entries(others).map(([key, value]) => element("span", {}, `${key}: ${value}`)),
    same?.length && element("span.same", {}, say("also", { names: [...same, ...(repeated > same.length ? ["…"] : [])].join(", ") })),
  ];
  return parts.filter(Boolean).map((part) => {
    part.dir = "auto";
    return part;
  });
}

/** The score; what it is made of shows under the pointer, with the focus, or for good after a click. */
function score(hit) {
  const parts = Object.entries(hit.parts ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(" · ");
  const turn = (event) => {
    const button = event.currentTarget;
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
  };
  const value = number(hit.score);
  if (!parts) return element("span.score", {}, value);
  return element("span.score", {},
    element("span.parts", { dir: "ltr" }, parts),
    element("button", { type: "button", "aria-expanded": "false", "aria-label": `Score ${value}, made of`, title: "Score", onclick: turn }, value));
}

/** A list item with the passage; `extra` stands at its foot in place of source and score. */
export function card(hit, extra = null) {
  const text = element("p.text", {}, highlighted(hit.text, hit.highlights));
  const article = element("article",
    { tabindex: "-1", "data-id": hit.id, lang: hit.lang || undefined, dir: direction(hit.lang), "aria-label": `${hit.rank}. ${hit.title || hit.id}` },
    element("span.rank", { dir: "ltr" }, String(hit.rank)),
    element("div.head", {}, hit.title ? element("h2", {}, hit.title) : null, badge(hit.lang)),
    ...(extra || !hit.metadata?.chunk ? [text] : inDocument(hit, text)),
    element("div.foot-of-card", { lang: language }, ...(extra ?? [element("span.source", {}, ...source(hit)), score(hit)])));
  return element("li.card", {}, article);
}

/** A button for the further passages of the document of `hit`, which `load` brings; they come below its card. */
export function offerMore(item, hit, load) {
  const label = say("further", { n: hit.more });
  const list = element("ol.cards.further", { "aria-label": label, hidden: true });
  const turn = async () => {
    button.disabled = true;
    if (!list.children.length) list.append(...(await load()).map((one) => card(one)));
    list.hidden = !list.hidden || !list.children.length; // none came
    button.disabled = false;
    button.setAttribute("aria-expanded", String(!list.hidden));
    button.textContent = list.hidden ? label : say("fewer");
    offerWholeTexts(list);
  };
  const button = element("button.further-button", { type: "button", "aria-expanded": "false", onclick: turn }, label);
  item.append(button, list);
}

/** Long texts are cut by the style sheet: give each that really is cut a button that shows the whole. */
export function offerWholeTexts(list) {
  const cut = [...list.querySelectorAll(".text:not(:has(+ .whole-text))")].filter((text) => text.scrollHeight > text.clientHeight + 2);
  for (const text of cut) {
    const turn = () => {
      const whole = text.classList.toggle("whole");
      button.textContent = say(whole ? "less" : "whole");
      button.setAttribute("aria-expanded", String(whole));
    };
    const button = element("button.whole-text", { type: "button", lang: language, "aria-expanded": "false", onclick: turn }, say("whole"));
    text.after(button);
  }
}
