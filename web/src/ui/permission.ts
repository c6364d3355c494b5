// Asks the user before a model is run for an address that another site may have chosen.

import { cameWithToken } from "../data/token";
import { h } from "./dom";

const ASKED = "This address asks for numbers that a model is run for. Click here, or press a key, to run it.";

// Not what the browser calls active: a page whose address was typed is, whichever site has redirected here since.
const used = new Promise<void>((resolve) => {
  for (const kind of ["pointerup", "keyup"])
    addEventListener(kind, (event) => event.isTrusted && resolve(), { capture: true });
});
let notice: HTMLElement | undefined;

/** Resolves once the user has done something in this page, or at once where it was opened with the token. */
export function permission(): Promise<void> {
  if (cameWithToken()) return Promise.resolve();
  const timer = setTimeout(() => {
    notice ??= document.body.appendChild(h("p", { class: "permission", role: "alert" }, ASKED));
  });
  return used.then(() => {
    clearTimeout(timer);
    notice?.remove();
  });
}
