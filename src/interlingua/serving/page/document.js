// The document of a hit, opened in its card: what stands before and after the passage.
import { documentOf } from "./api.js";
import { element } from "./dom.js";
import { direction } from "./languages.js";
import { language, say } from "./messages.js";
import { failure, noNotice } from "./notice.js";

const NEAR = 2; // passages before it, and after it
const ALL = 500; // as many as the search service gives

const around = ({ lang, part }) => element("p", { lang: lang || undefined, dir: direction(lang) }, part.trim());

/** `text`, the passage of a hit, between what is around it, with buttons that bring it. */
export function inDocument(hit, text) {
  const before = element("div.around");
  const after = element("div.around");
  const buttons = element("div.document", { lang: language });
  const show = async (wanted) => {
    const focused = buttons.contains(document.activeElement);
    for (const button of buttons.children) button.disabled = true;
    let more = false;
    try {
      const { passages, position } = wanted ? await documentOf(hit, wanted) : { passages: [], position: 0 };
      before.replaceChildren(...passages.slice(0, position).map(around));
      after.replaceChildren(...passages.slice(position + 1).map(around));
      more = wanted === NEAR && Math.max(position, passages.length - 1 - position) >= NEAR;
    } catch (error) {
      const asked = wanted;
      failure(error, () => { noNotice(); show(asked); });
      wanted = 0;
    }
    text.classList.toggle("opened", Boolean(wanted));
    offer(wanted, more);
    if (focused) buttons.firstElementChild.focus({ preventScroll: true });
  };
  const offer = (shown, more) => {
    const press = (label, wanted) => element("button", { type: "button", onclick: () => show(wanted) }, say(label));
    const near = press(shown ? "less" : "around", shown ? 0 : NEAR);
    near.setAttribute("aria-expanded", String(Boolean(shown)));
    buttons.replaceChildren(near, ...(more ? [press("whole", ALL)] : []));
  };
  offer(0, false);
  return [before, text, after, buttons];
}
