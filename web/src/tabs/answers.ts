// Accuracy under each condition, the problems that changed, and every answer.

import type { Comparison, Flips } from "../data/types";
import { card, type Card } from "../ui/card";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { visible } from "../ui/text";
import { AnswerSearch } from "./answersearch";
import { accuracyPanel, comparisonTable, NOISE_NOTE, noiseTable, NOTE } from "./comparison";
import { flipList } from "./flips";
import { empty, labelled, loading, Turn, type Pane, type Tab } from "./pane";

export class AnswersTab implements Tab {
  private readonly top = h("div", {}, loading("accuracies"));
  private readonly changed = h("section", { class: "card" }, loading("problems that changed"));
  private readonly search: AnswerSearch;
  readonly element: HTMLElement;
  private drawn: Card[] = [];
  private readonly turn = new Turn();

  constructor(private readonly pane: Pane) {
    this.search = new AnswerSearch(pane);
    this.element = h("div", { class: "answers" }, this.top, this.changed, this.search.element);
  }

  destroy(): void {
    this.drawn.forEach((one) => one.destroy());
  }

  async update(): Promise<void> {
    const { pane } = this;
    if (!pane.overview.has.answers) throw new Error("This run asked for no answers.");
    const mine = this.turn.take();
    try {
      const comparison = await pane.api.json<Comparison>("comparison", { by: pane.state.by });
      if (!comparison.rows.length) throw new Error("No answer has landed yet.");
      if (mine()) this.compare(comparison);
    } catch (error) {
      return replace(this.top, empty((error as Error).message));
    }
    if (pane.begun("answering")) await Promise.all([this.flips(mine), this.search.update(mine, temperatureOf(pane))]);
    else
      [this.changed, this.search.element].forEach((one) =>
        replace(one, empty("No answer of this model has landed yet.")),
      );
  }

  private compare({ rows, fields, noise }: Comparison): void {
    const { pane } = this;
    this.destroy();
    const options: [string, string][] = [
      ["", "all problems together"],
      ...fields.map((name): [string, string] => [name, visible(name)]),
    ];
    const menu = select("Split by", options, pane.state.by, (by) => pane.go({ by }), "by");
    const bars = card(accuracyPanel(pane, rows));
    this.drawn = [bars];
    const compared = titled("Every condition against none, on the same problems", comparisonTable(rows), NOTE);
    const floor = noise.length
      ? titled("Verdicts that change, beside those that rounding changes", noiseTable(noise), NOISE_NOTE)
      : null;
    const controls = h("div", { class: "controls" }, pane.modelMenu(), menu);
    keepingFocus(this.top, () => replace(this.top, controls, bars.element, compared, floor));
  }

  private async flips(mine: () => boolean): Promise<void> {
    const { pane } = this;
    if (!pane.fillers.length) return replace(this.changed, empty("The study has no condition to compare with none."));
    const against = this.against;
    const head = h("header", { class: "card-head" }, h("h3", {}, "Problems that changed"));
    const asked = { model: pane.model.name, condition: pane.condition, against, temperature: temperatureOf(pane) };
    try {
      const { flips } = await pane.api.json<Flips>("flips", asked);
      if (!mine()) return;
      const body = flipList(flips, pane.label(against), pane.label(pane.condition));
      keepingFocus(this.changed, () => replace(this.changed, head, this.flipMenus(), body));
    } catch (error) {
      if (mine()) replace(this.changed, head, this.flipMenus(), empty((error as Error).message));
    }
  }

  /** What the condition is held against: another one. */
  private get against(): string {
    const { condition, state, overview } = this.pane;
    return overview.conditions.some((one) => one.name === state.against && one.name !== condition)
      ? state.against
      : "none";
  }

  private flipMenus(): HTMLElement {
    const { pane } = this;
    const others = labelled(pane.overview.conditions.filter((one) => one.name !== pane.condition));
    const against = select("Against", others, this.against, (name) => pane.go({ against: name }));
    return h("div", { class: "controls" }, pane.conditionMenu(), against, temperatureMenu(pane));
  }
}

function titled(title: string, table: HTMLElement, note: string): HTMLElement {
  const head = h("header", { class: "card-head" }, h("h3", {}, title));
  return h("section", { class: "card" }, head, table, h("p", { class: "hint" }, note));
}

/** One of the study's, the first unless another is chosen. */
function temperatureOf(pane: Pane): string {
  const known = pane.overview.temperatures.map(String);
  return known.includes(pane.state.temperature) ? pane.state.temperature : known[0];
}

function temperatureMenu(pane: Pane): HTMLElement | null {
  const options = pane.overview.temperatures.map((one): [string, string] => [String(one), String(one)]);
  if (options.length < 2) return null;
  return select("Temperature", options, temperatureOf(pane), (temperature) => pane.go({ temperature, start: 0 }));
}
