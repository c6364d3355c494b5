// Asks the user before a model is run for an address that another site may have chosen.

import { cameWithToken } from "../data/token";
import { h } from "./dom";

const ASKED = "This address asks for numbers that a model is run for. Click here, or press a key, to run it.";

let isChanged = false; // the address, by somebody else than the controls of this page: they cause no such event
let isUsed = false; // this page, since then
let waiting: (() => void)[] = [];
let notice: HTMLElement | undefined;

// A site that has opened this page may change what stands behind the # at any time.
addEventListener("hashchange", () => ([isChanged, isUsed] = [true, false]), { capture: true });
// Not what the browser calls active: a page whose address was typed is, whichever site has redirected here since.
for (const kind of ["pointerup", "keyup", "change"])
  addEventListener(kind, (event) => event.isTrusted && use(), { capture: true });

/** Resolves once the user has done something in this page since its address was changed, or at once where the address
 *  is the one that it was opened with, and had the token. */
export function permission(): Promise<void> {
  if (isUsed || (cameWithToken() && !isChanged)) return Promise.resolve();
  setTimeout(() => {
    if (waiting.length) notice ??= document.body.appendChild(h("p", { class: "permission", role: "alert" }, ASKED));
  });
  return new Promise((resolve) => waiting.push(resolve));
}

function use(): void {
  isUsed = true;
  waiting.forEach((resolve) => resolve());
  waiting = [];
  notice?.remove();
  notice = undefined;
}
