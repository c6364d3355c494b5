// Tabs of curves by layer: the affine picture with depth, and activations with their histograms.

import type { LinePanel } from "../data/types";
import { card, type Card, type CardOptions } from "../ui/card";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { visible } from "../ui/text";
import { loading, Turn, type Pane, type Tab } from "./pane";

abstract class LayersTab implements Tab {
  readonly element = h("div", { class: "layers" });
  private readonly controls = h("div", { class: "controls" });
  private readonly grid = h("div", { class: "panels" }, loading("curves by layer"));
  private drawn: Card[] = [];
  private readonly turn = new Turn();

  constructor(protected readonly pane: Pane) {
    this.element.append(this.controls, this.grid);
  }

  destroy(): void {
    this.drawn.forEach((one) => one.destroy());
  }

  async update(): Promise<void> {
    const reason = this.lacks();
    if (reason) throw new Error(reason);
    if (!this.pane.model.layers) throw new Error("No shard has landed yet.");
    const mine = this.turn.take();
    const panels = await this.panels();
    if (!mine()) return;
    keepingFocus(this.controls, () => replace(this.controls, ...this.menus()));
    this.destroy();
    this.drawn = panels.map((panel) => card(panel, this.options(panel)));
    keepingFocus(this.grid, () => replace(this.grid, ...this.drawn.map((one) => one.element)));
  }

  private options(panel: LinePanel): CardOptions {
    const { pane } = this;
    return {
      height: 250,
      off: labelsOff(panel, pane.state.off),
      switched: (off) => pane.go({ off: conditionsOff(panel, off) }),
      pick: panel.edges ? undefined : (layer) => pane.go({ layer }),
    };
  }

  protected abstract lacks(): string;
  protected abstract menus(): (HTMLElement | null)[];
  protected abstract panels(): Promise<LinePanel[]>;
}

/** The address names conditions; a chart knows its lines by their labels. */
export function labelsOff(panel: LinePanel, conditions: string[]): Set<string> {
  return new Set(panel.series.filter((line) => conditions.includes(line.condition ?? "")).map((line) => line.label));
}

export function conditionsOff(panel: LinePanel, labels: Set<string>): string[] {
  return panel.series.filter((line) => labels.has(line.label)).map((line) => line.condition ?? "");
}

export class AffineTab extends LayersTab {
  protected lacks(): string {
    return this.pane.overview.has.attention ? "" : "This run did not measure attention.";
  }

  protected menus(): (HTMLElement | null)[] {
    const hint = "The study has no affine probe: give `probes: {affine: true}`. By depth alone:";
    return [this.pane.modelMenu(), this.pane.overview.has.affine ? null : h("p", { class: "hint" }, hint)];
  }

  protected async panels(): Promise<LinePanel[]> {
    const { pane } = this;
    const depth = await pane.api.json<LinePanel[]>("depth", { model: pane.model.name, queries: pane.queries });
    if (!pane.overview.has.affine) return depth;
    return [...(await pane.api.json<LinePanel[]>("affine", { model: pane.model.name })), ...depth];
  }
}

export class ActivationsTab extends LayersTab {
  protected lacks(): string {
    const { activations } = this.pane.overview.has;
    return activations ? "" : "This run did not look at activations: its study needs `probes: {activations: true}`.";
  }

  private get cls(): string {
    const { cls } = this.pane.state;
    return this.pane.overview.classes.includes(cls) ? cls : "all";
  }

  protected menus(): (HTMLElement | null)[] {
    const { pane } = this;
    const classes = pane.overview.classes.map((name): [string, string] => [name, visible(name)]);
    const tokens = select("Tokens", classes, this.cls, (cls) => pane.go({ cls }), "cls");
    return [pane.modelMenu(), pane.layerMenu(), tokens];
  }

  protected async panels(): Promise<LinePanel[]> {
    const { pane } = this;
    const asked = { model: pane.model.name, cls: this.cls };
    const [histogram, layers] = await Promise.all([
      pane.api.json<LinePanel>("histogram", { ...asked, layer: pane.layer }),
      pane.api.json<LinePanel[]>("activations", asked),
    ]);
    return [histogram, ...layers];
  }
}
