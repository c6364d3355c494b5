// The choice of one problem: by its id and its question, found by a part of either, or by its number.

import { h, select } from "../ui/dom";
import { visible } from "../ui/text";
import type { Model } from "../data/types";
import type { Pane } from "./pane";

const MANY = 8; // problems from which on there is a search

/** A menu of problems, and beside it a field that leaves only those with a text in id or question. Of very many problems
 * the first are listed; the others are found by their number. */
export function problemMenu(pane: Pane, chosen: string, first: [string, string][], disabled = false): HTMLElement {
  const { model } = pane;
  const options = model.problems.map((one): [string, string] => [
    String(one.number),
    visible([one.id, one.question].filter(Boolean).join(": ")),
  ]);
  if (isUnlisted(model, chosen)) options.push(byNumber(chosen));
  const menu = select("One problem", [...first, ...options], chosen, (problem) => pane.go({ problem }), "problem");
  const list = menu.querySelector("select")!;
  list.disabled = disabled;
  if (disabled || options.length < MANY) return menu;
  const all = [...list.options];
  const more = model.problems.length < model.measured;
  const field: HTMLInputElement = h("input", {
    type: "search",
    name: "find",
    placeholder: more
      ? `id, question or number; ${model.problems.length} of ${model.measured} listed`
      : "id or question",
    "aria-label": `Find a problem by its id or question${more ? ", or by its number" : ""}`,
    input: () => {
      const text = field.value.trim();
      const found = isUnlisted(model, text) && text !== chosen ? [new Option(byNumber(text)[1], text)] : [];
      list.replaceChildren(...matching(all, text, list.value), ...found);
    },
  });
  menu.classList.add("wide");
  return h("div", { class: "find" }, menu, field);
}

/** Whether a model has a problem of this number which its list leaves out. */
export function isUnlisted(model: Model, number: string): boolean {
  const more = model.problems.length < model.measured;
  const known = model.problems.some((one) => String(one.number) === number);
  return more && !known && /^\d+$/.test(number) && Number(number) < model.measured + model.failed;
}

function byNumber(number: string): [string, string] {
  return [number, `problem ${number}`];
}

/** What is chosen stays in the list, whatever is searched for. */
function matching(all: HTMLOptionElement[], text: string, chosen: string): HTMLOptionElement[] {
  const wanted = visible(text).toLocaleLowerCase(); // as the list shows it
  return all.filter((one) => one.value === chosen || one.text.toLocaleLowerCase().includes(wanted));
}
