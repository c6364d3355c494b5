// The choice of one problem: by its id and its question, found by a part of either.

import { h, select } from "../ui/dom";
import { visible } from "../ui/text";
import type { Pane } from "./pane";

const MANY = 8; // problems from which on there is a search

/** A menu of problems, and beside it a field that leaves only those with a text in id or question. */
export function problemMenu(pane: Pane, chosen: string, first: [string, string][], disabled = false): HTMLElement {
  const options = pane.model.problems.map((one): [string, string] => [
    String(one.number),
    visible([one.id, one.question].filter(Boolean).join(": ")),
  ]);
  const menu = select("One problem", [...first, ...options], chosen, (problem) => pane.go({ problem }), "problem");
  const list = menu.querySelector("select")!;
  list.disabled = disabled;
  if (disabled || options.length < MANY) return menu;
  const all = [...list.options];
  const label = "Find a problem by its id or question";
  const field: HTMLInputElement = h("input", {
    type: "search",
    name: "find",
    placeholder: "id or question",
    "aria-label": label,
    input: () => list.replaceChildren(...matching(all, field.value, list.value)),
  });
  menu.classList.add("wide");
  return h("div", { class: "find" }, menu, field);
}

/** What is chosen stays in the list, whatever is searched for. */
function matching(all: HTMLOptionElement[], text: string, chosen: string): HTMLOptionElement[] {
  const wanted = visible(text.trim()).toLocaleLowerCase(); // as the list shows it
  return all.filter((one) => one.value === chosen || one.text.toLocaleLowerCase().includes(wanted));
}
