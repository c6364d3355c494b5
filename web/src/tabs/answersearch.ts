// A search through all answers of a model, some at a time.

import { VERDICTS, type Transcripts } from "../data/types";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { transcript, verdictName } from "./flips";
import { labelled, loading, type Pane } from "./pane";

const SIZE = 50; // answers on a page, as the server sends them

export class AnswerSearch {
  readonly element = h("section", { class: "card" }, loading("answers"));

  constructor(private readonly pane: Pane) {}

  async update(mine: () => boolean, temperature: string): Promise<void> {
    const { pane } = this;
    const { text, verdict, only, start } = pane.state;
    const asked = { model: pane.model.name, text, verdict, condition: only, start, temperature };
    const page = await pane.api.json<Transcripts>("answers", asked);
    if (!mine()) return;
    const list = page.answers.map((answer) => transcript(answer, pane.label(answer.condition)));
    const head = h("header", { class: "card-head" }, h("h3", {}, "All answers"));
    const steps = page.total > SIZE ? this.steps(page) : null;
    keepingFocus(this.element, () => replace(this.element, head, this.form(), counted(page), ...list, steps));
  }

  private form(): HTMLElement {
    const { pane } = this;
    const { text, verdict, only } = pane.state;
    const label = "Search questions and answers";
    const input = h("input", { type: "search", name: "text", placeholder: label, value: text, "aria-label": label });
    const submit = (event: Event) => (event.preventDefault(), pane.go({ text: input.value, start: 0 }));
    const verdicts: [string, string][] = [
      ["", "any verdict"],
      ...VERDICTS.map((name): [string, string] => [name, verdictName(name)]),
    ];
    const conditions: [string, string][] = [["", "any condition"], ...labelled(pane.overview.conditions)];
    return h(
      "form",
      { class: "controls", submit },
      input,
      h("button", { type: "submit" }, "Search"),
      select("Verdict", verdicts, verdict, (name) => pane.go({ verdict: name, start: 0 })),
      select("Under", conditions, only, (name) => pane.go({ only: name, start: 0 }), "only"),
    );
  }

  private steps({ start, total, answers }: Transcripts): HTMLElement {
    const go = (to: number) => () => this.pane.go({ start: to });
    const last = start + answers.length >= total;
    return h(
      "div",
      { class: "controls" },
      h("button", { type: "button", disabled: start === 0, click: go(Math.max(0, start - SIZE)) }, "Earlier"),
      h("button", { type: "button", disabled: last, click: go(start + SIZE) }, "Later"),
    );
  }
}

function counted({ start, total, answers }: Transcripts): HTMLElement {
  const last = Math.min(total, start + answers.length);
  const text = total ? `${start + 1} to ${last} of ${total} answers` : "No answer matches.";
  return h("p", { class: "count", role: "status" }, text);
}
