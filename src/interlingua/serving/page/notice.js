// What stands in place of results: a failure, nothing found.
import { useToken } from "./api.js";
import { byId, element } from "./dom.js";

const HEADLINES = { network: "No answer", busy: "Busy", locked: "Not open to all", refused: "Not possible", broken: "Something is wrong" };

function show(title, text, ...rest) {
  byId("notice").replaceChildren(element("h2", {}, title), element("p", { dir: "auto" }, text), ...rest);
}

/** `actions`: [label, what to do] of each button. */
export function notice(title, text, ...actions) {
  show(title, text, ...actions.map(([label, run]) => element("button", { type: "button", onclick: run }, label)));
}

function askForToken(text, again) {
  const box = element("input", { type: "password", id: "token", "aria-label": "Token", autocomplete: "off", required: true });
  const enter = (event) => {
    event.preventDefault();
    useToken(box.value.trim());
    again();
  };
  show(HEADLINES.locked, text, element("form.token", { onsubmit: enter }, box, element("button", {}, "Enter")));
  box.focus();
}

export const noNotice = () => byId("notice").replaceChildren();

/** A refused question is refused again: there `actions` stand instead of asking once more. */
export function failure(error, again, ...actions) {
  if (error.kind === "locked") askForToken(error.message, again);
  else notice(HEADLINES[error.kind] ?? HEADLINES.broken, error.message, ...(error.kind === "refused" ? actions : [["Try again", again]]));
}
