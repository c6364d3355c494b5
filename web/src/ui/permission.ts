// Asks the user before a model is run for an address that another site may have chosen.

import { cameWithToken } from "../data/token";
import { h } from "./dom";

const ASKED = "This address asks for numbers that a model is run for.";
// Milliseconds since the page came to the front: the second half of a double click on another page, which may have lain
// above this one, must not press the button.
const PATIENCE = 700;

let isChanged = false; // the address, by somebody else than the controls of this page: they cause no such event
let isGiven = false; // permission, since then
let waiting: (() => void)[] = [];
let notice: HTMLElement | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

// A site that has opened this page may change what stands behind the # at any time.
addEventListener("hashchange", () => ([isChanged, isGiven] = [true, false]), { capture: true });

["focus", "blur"].forEach((name) => addEventListener(name, hold));
document.addEventListener("visibilitychange", hold);

/** Resolves once the user has pressed the button of the notice, or at once where they did so since the address was
 *  changed, or where it is the one that the page was opened with, and had the token. No other key or click counts: it
 *  may have been meant for the page that led here, as is the end of a press that began there. */
export function permission(): Promise<void> {
  if (isGiven || (cameWithToken() && !isChanged)) return Promise.resolve();
  setTimeout(() => {
    if (waiting.length && !notice) ask();
  });
  return new Promise((resolve) => waiting.push(resolve));
}

/** The notice comes first in the page, so that the first Tab leads to its button. The button is not focused: a key that
 *  is held from before would press it. */
function ask(): void {
  const press = (event: Event) => event.isTrusted && give();
  const button = h("button", { type: "button", click: press }, "Run the model");
  notice = h("p", { class: "permission", role: "alert" }, ASKED, " ", button);
  document.body.prepend(notice);
  hold();
}

/** Lets nobody press the button until the page has been at the front for a while. */
function hold(): void {
  const button = notice?.querySelector("button");
  clearTimeout(timer);
  if (!button) return;
  button.disabled = true;
  if (document.hasFocus()) timer = setTimeout(() => (button.disabled = false), PATIENCE);
}

function give(): void {
  isGiven = true;
  waiting.forEach((resolve) => resolve());
  waiting = [];
  notice?.remove();
  notice = undefined;
}
