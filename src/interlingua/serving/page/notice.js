// What stands in place of results: a failure, nothing found.
import { useToken } from "./api.js";
import { byId, element } from "./dom.js";
import { say } from "./messages.js";

const HEADLINES = { network: "noNetworkTitle", busy: "busyTitle", locked: "lockedTitle", refused: "refusedTitle", broken: "brokenTitle" };

function show(title, text, ...rest) {
  byId("notice").replaceChildren(element("h2", {}, title), element("p", { dir: "auto" }, text), ...rest);
}

/** `actions`: [label, what to do] of each button. */
export function notice(title, text, ...actions) {
  show(title, text, ...actions.map(([label, run]) => element("button", { type: "button", onclick: run }, label)));
}

function askForToken(text, again) {
  const box = element("input", { type: "password", id: "token", "aria-label": say("token"), autocomplete: "off", required: true });
  const enter = (event) => {
    event.preventDefault();
    useToken(box.value.trim());
    again();
  };
  show(say(HEADLINES.locked), text, element("form.token", { onsubmit: enter }, box, element("button", {}, say("enter"))));
  box.focus();
}

export const noNotice = () => byId("notice").replaceChildren();

/** A refused question is refused again: there `actions` stand instead of asking once more. */
export function failure(error, again, ...actions) {
  if (error.kind === "locked") askForToken(error.message, again);
  else notice(say(HEADLINES[error.kind] ?? HEADLINES.broken), error.message, ...(error.kind === "refused" ? actions : [[say("tryAgain"), again]]));
}
