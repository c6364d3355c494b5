// The map of all heads: one metric of each, under one condition.

import { MapChart } from "../charts/mapchart";
import type { Packed } from "../data/api";
import type { MapHeader, MapPanel, Metric } from "../data/types";
import { head } from "../ui/card";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { interval } from "../ui/text";
import { empty, type Pane } from "./pane";

const QUERIES: Record<string, string> = {
  all: "all tokens",
  original: "original tokens",
  last: "last token",
  answer: "the answer's tokens",
};

export class HeadMap {
  private readonly head = h("div", {});
  private readonly controls = h("div", { class: "controls" });
  private readonly body = h("div", { class: "card-body" });
  private readonly readout = h("p", { class: "readout", "aria-live": "polite" });
  readonly element = h("section", { class: "card map" }, this.head, this.controls, this.body, this.readout);
  private chart: MapChart | null = null;
  private shown: { maps: Packed<MapHeader>; metric: Metric } | null = null;

  constructor(private readonly pane: Pane) {}

  destroy(): void {
    this.chart?.destroy();
  }

  async update(mine: () => boolean): Promise<void> {
    const { pane } = this;
    if (!pane.fillers.length) return replace(this.body, empty("The study has no condition to compare with none."));
    const asked = { model: pane.model.name, condition: pane.condition, queries: pane.queries };
    const maps = await pane.api.packed<MapHeader>("map", asked);
    if (!mine()) return;
    const panel = this.panel(maps);
    this.draw(panel, this.shown?.maps === maps && this.shown.metric === this.metric);
    this.shown = { maps, metric: this.metric };
    keepingFocus(this.controls, () => replace(this.controls, ...this.menus()));
    replace(this.head, head(panel));
    const [i, j] = [pane.layer - 1, pane.head - 1];
    const cell = interval(panel.value[i][j], panel.low[i][j], panel.high[i][j]);
    replace(this.readout, `Layer ${pane.layer}, head ${pane.head}: `, h("b", {}, cell), ` \u00b7 n = ${maps.header.n}`);
  }

  /** A large map is not drawn again where only another head is chosen. */
  private draw(panel: MapPanel, same: boolean): void {
    const { pane } = this;
    const chosen: [number, number] = [pane.layer - 1, pane.head - 1];
    if (this.chart) {
      if (!same) this.chart.show(panel);
      return this.chart.choose(...chosen);
    }
    const choose = (row: number, column: number) => pane.go({ layer: row + 1, head: column + 1 });
    this.chart = new MapChart(panel, { chosen, choose, highest: 620 });
    this.body.append(this.chart.element);
  }

  private get metric(): Metric {
    const { metrics } = this.pane.overview;
    return metrics.find((one) => one.name === this.pane.state.metric) ?? metrics[0];
  }

  private menus(): (HTMLElement | null)[] {
    const { pane } = this;
    const metrics = pane.overview.metrics.map((one): [string, string] => [one.name, one.label]);
    const queries = pane.overview.queries.map((one): [string, string] => [one, QUERIES[one] ?? one]);
    return [
      pane.modelMenu(),
      select("Metric", metrics, this.metric.name, (metric) => pane.go({ metric })),
      pane.conditionMenu(),
      select("Queries", queries, pane.queries, (name) => pane.go({ queries: name })),
    ];
  }

  private panel(maps: Packed<MapHeader>): MapPanel {
    const { pane, metric } = this;
    const { layers, heads } = pane.model;
    const rows = (part: string) => {
      const { values } = maps.arrays.get(`${metric.name}/${part}`)!;
      return Array.from({ length: layers }, (_, i) => Array.from(values.subarray(i * heads, (i + 1) * heads)));
    };
    return {
      kind: "map",
      title: `${pane.model.label}, ${pane.label(pane.condition)} against none`,
      down: "layer",
      across: "head",
      rows: Array.from({ length: layers }, (_, i) => i + 1),
      columns: Array.from({ length: heads }, (_, i) => i + 1),
      scale: metric.scale,
      name: metric.label,
      colour: rows("value"),
      value: rows("value"),
      low: rows("low"),
      high: rows("high"),
    };
  }
}
