// Tabs of curves by layer: the affine picture with depth, and activations with their histograms.

import { card, type Card } from "./card";
import { h, keepingFocus, replace, select } from "./dom";
import { Turn, type Pane, type Tab } from "./pane";
import type { LinePanel } from "./panels";
import { joined } from "./state";
import { visible } from "./text";

abstract class LayersTab implements Tab {
  readonly element = h("div", { class: "layers" });
  private readonly controls = h("div", { class: "controls" });
  private readonly grid = h("div", { class: "panels" });
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

  private options(panel: LinePanel): object {
    const { pane } = this;
    const off = pane.address.list("off");
    return {
      height: 250,
      off: new Set(panel.series.filter((line) => off.has(line.condition!)).map((line) => line.label)),
      switched: (found: Set<string>) => {
        const names = panel.series.filter((line) => found.has(line.label)).map((line) => line.condition!);
        pane.address.set({ off: joined(new Set(names)) });
      },
      pick: panel.edges ? undefined : (layer: number) => pane.address.set({ layer }),
    };
  }

  protected abstract lacks(): string;
  protected abstract menus(): (HTMLElement | null)[];
  protected abstract panels(): Promise<LinePanel[]>;
}

export class AffineTab extends LayersTab {
  protected lacks(): string {
    return this.pane.overview.has.attention ? "" : "This run did not measure attention.";
  }

  protected menus(): (HTMLElement | null)[] {
    const { affine } = this.pane.overview.has;
    return [this.pane.modelMenu(), affine ? null : h("p", { class: "hint" }, "The study has no affine probe: give `probes: {affine: true}`. By depth alone:")];
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
    return this.pane.overview.has.activations ? "" : "This run did not look at activations: its study needs `probes: {activations: true}`.";
  }

  private get cls(): string {
    const wanted = this.pane.address.get("cls", "all");
    return this.pane.overview.classes.includes(wanted) ? wanted : "all";
  }

  protected menus(): (HTMLElement | null)[] {
    const { pane } = this;
    const classes = pane.overview.classes.map((name): [string, string] => [name, visible(name)]);
    return [pane.modelMenu(), pane.layerMenu(), select("Tokens", classes, this.cls, (cls) => pane.address.set({ cls }), "cls")];
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
