// One head on one prompt, queries against keys, without filler and with it. Computed when it is asked for.

import type { Packed } from "../data/api";
import type { MatrixPanel } from "../data/panels";
import { WEIGHT_SCALES, type WeightScale } from "../charts/scales";
import type { MatrixHeader, Ready } from "../data/types";
import { card, type Card } from "../ui/card";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { visible } from "../ui/text";
import { empty, labelled, loading, Turn, type Pane, type Tab } from "./pane";
import { isUnlisted, problemMenu } from "./problemmenu";

const HINT =
  "A row is a token that attends, a column a token that it attends to; dashed lines enclose the filler. " +
  "Drag to zoom, double-click for all. Arrow keys read cells, + and \u2212 zoom.";

export class OneTextTab implements Tab {
  private readonly controls = h("div", { class: "controls" });
  private readonly grid = h("div", { class: "matrices" }, loading("what this problem can show"));
  private readonly note = h("p", { class: "note", role: "status" });
  readonly element = h(
    "div",
    { class: "one-text" },
    this.controls,
    this.grid,
    h("p", { class: "hint" }, HINT),
    this.note,
  );
  private drawn: Card[] = [];
  private readonly turn = new Turn();

  constructor(private readonly pane: Pane) {}

  destroy(): void {
    this.drawn.forEach((one) => one.destroy());
  }

  async update(): Promise<void> {
    const { pane } = this;
    if (!pane.overview.has.attention) throw new Error("This run did not measure attention.");
    if (!pane.model.problems.length) throw new Error("No problem has been measured yet.");
    const mine = this.turn.take();
    const { reason } = await pane.api.json<Ready>("ready", { model: pane.model.name });
    if (!mine()) return;
    keepingFocus(this.controls, () => replace(this.controls, ...this.menus(Boolean(reason))));
    if (reason) return replace(this.grid, empty(`Attention of one text cannot be computed here: ${reason}`));
    replace(this.grid, loading(`layer ${pane.layer} head ${pane.head} on this problem; the model is run for it`));
    await this.show(mine);
  }

  /** One condition after the other: each is drawn as soon as it is there. */
  private async show(mine: () => boolean): Promise<void> {
    this.destroy();
    this.drawn = [];
    const notes: string[] = [];
    for (const condition of this.conditions) {
      try {
        const matrix = await this.pane.api.measured<MatrixHeader>("matrix", { ...this.asked, condition });
        if (!mine()) return;
        this.drawn.push(card(this.panel(matrix)));
        notes.push(`${this.pane.label(condition)}: ${matrix.header.note}`);
      } catch (error) {
        if (!mine()) return;
        notes.push(`${this.pane.label(condition)} cannot be shown: ${(error as Error).message}`);
      }
      replace(this.grid, ...this.drawn.map((one) => one.element));
      replace(this.note, visible(notes.join(" ")));
    }
    if (!this.drawn.length) replace(this.grid, empty("Nothing can be shown of this problem: see the note below."));
  }

  private get conditions(): string[] {
    const { condition } = this.pane;
    return condition === "none" ? ["none"] : ["none", condition];
  }

  private get problem(): string {
    const { model, state } = this.pane;
    const known = model.problems.some((one) => String(one.number) === state.problem);
    return known || isUnlisted(model, state.problem) ? state.problem : String(model.problems[0].number);
  }

  private get asked(): Record<string, string | number> {
    const { model, layer, head } = this.pane;
    return { model: model.name, problem: this.problem, layer, head };
  }

  private get scale(): WeightScale {
    const { colour } = this.pane.state;
    return WEIGHT_SCALES.find((one) => one === colour) ?? "logarithmic";
  }

  private menus(disabled: boolean): (HTMLElement | null)[] {
    const { pane } = this;
    const scales = WEIGHT_SCALES.map((one): [string, string] => [one, one]);
    return [
      pane.modelMenu(),
      problemMenu(pane, this.problem, [], disabled),
      pane.fillers.length
        ? select("Beside none", labelled(pane.fillers), pane.condition, (condition) => pane.go({ condition }))
        : null,
      pane.layerMenu(),
      pane.headMenu(),
      select("Colours", scales, this.scale, (colour) => pane.go({ colour }), "colour"),
    ];
  }

  private panel({ header, arrays }: Packed<MatrixHeader>): MatrixPanel {
    const { pane } = this;
    const { id, condition, layer, head, tokens, filler } = header;
    return {
      kind: "matrix",
      title: `${pane.model.label} Layer ${layer} Head ${head}, ${pane.label(condition)}, problem ${id}`,
      name: `Attention weight, ${this.scale} colours`,
      condition,
      tokens,
      filler,
      weights: arrays.get("weights")!.values,
      scale: this.scale,
    };
  }
}
