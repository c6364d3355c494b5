// Problems whose verdict changed, with both answers, and single answers.

import type { Answer, Flip, Side, Verdict } from "../data/types";
import { h, replace } from "../ui/dom";
import { visible } from "../ui/text";

const LINE = 90; // characters of a question in a list
const AT_ONCE = 12; // flips shown before one asks for more

/** A verdict as it is shown: stored runs have another word for answers that the token limit ended. */
export function verdictName(verdict: Verdict): string {
  return verdict === "cut off" ? "truncated" : verdict;
}

export function flipList(flips: Flip[], before: string, after: string): HTMLElement {
  const gained = flips.filter((flip) => flip.direction === "gained").length;
  const list = h("div", { class: "flips" });
  const more = h("button", { type: "button", click: () => grow() });
  const count = h(
    "p",
    { class: "count" },
    `${visible(before)} to ${visible(after)}: ${gained} gained, ${flips.length - gained} lost`,
  );
  let shown = 0;
  const grow = () => {
    const next = flips.slice(shown, shown + AT_ONCE);
    list.append(...next.map((flip) => oneFlip(flip, before, after)));
    shown += next.length;
    more.hidden = shown >= flips.length;
    replace(more, `Show more (${flips.length - shown})`);
  };
  grow();
  return h("div", {}, count, list, more);
}

function oneFlip(flip: Flip, before: string, after: string): HTMLElement {
  const sides = [side(before, flip.before), side(after, flip.after)];
  const title = h(
    "summary",
    {},
    h("span", { class: `badge ${flip.direction}` }, flip.direction),
    " ",
    h("bdi", {}, visible(flip.id)),
    h("span", { class: "asked" }, h("bdi", {}, visible(shortened(flip.question)))),
  );
  return h("details", { class: "flip", open: true }, title, ...asked(flip), h("div", { class: "sides" }, ...sides));
}

/** One answer, folded. */
export function transcript(answer: Answer, condition: string): HTMLElement {
  const summary = h(
    "summary",
    {},
    badge(answer.verdict),
    " ",
    h("bdi", {}, visible(answer.id)),
    " \u00b7 ",
    h("bdi", {}, visible(condition)),
    answer.sample > 1 ? ` \u00b7 sample ${answer.sample}` : "",
    h("span", { class: "asked" }, h("bdi", {}, visible(shortened(answer.question)))),
  );
  return h("details", { class: "flip" }, summary, ...asked(answer), side(condition, answer));
}

/** A question as far as it fits into a line. */
function shortened(question: string): string {
  const letters = [...question.replace(/\s+/g, " ").trim()];
  return letters.length > LINE ? `${letters.slice(0, LINE - 1).join("")}\u2026` : letters.join("");
}

function asked({ question, reference }: { question: string; reference: string }): HTMLElement[] {
  return [
    h("p", { class: "question" }, h("bdi", {}, visible(question, "\n\t"))),
    h("p", { class: "reference" }, "Reference: ", h("bdi", {}, visible(reference))),
  ];
}

function side(name: string, { verdict, extracted, text, finish, tokens, note }: Side): HTMLElement {
  const answer = h("bdi", { class: "extracted" }, visible(extracted || "\u2013"));
  const head = h("header", {}, h("bdi", {}, visible(name)), " ", badge(verdict), " ", h("span", {}, "answer "), answer);
  const foot = `${tokens} tokens${finish === "length" ? ", truncated" : ""}${note ? `; ${visible(note)}` : ""}`;
  return h("article", {}, head, h("pre", {}, h("bdi", {}, visible(text.trim(), "\n\t"))), h("footer", {}, foot));
}

function badge(verdict: Verdict): HTMLElement {
  return h("span", { class: `badge ${verdict.replaceAll(" ", "-")}` }, verdictName(verdict));
}
