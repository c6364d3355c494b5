// The map of all heads: one metric of each, under one condition.

import { MapChart } from "../charts/mapchart";
import { reachOf } from "../charts/scales";
import type { Packed } from "../data/api";
import type { MapHeader, MapPanel, Metric } from "../data/types";
import { head } from "../ui/card";
import { h, keepingFocus, replace, select } from "../ui/dom";
import { interval } from "../ui/text";
import { empty, loading, type Pane, type SharedColours } from "./pane";

const QUERIES: Record<string, string> = {
  all: "all tokens",
  original: "original tokens",
  last: "last token",
  answer: "the answer's tokens",
};

export class HeadMap {
  private readonly head = h("div", {});
  private readonly controls = h("div", { class: "controls" });
  private readonly body = h("div", { class: "card-body" }, loading("the map of heads"));
  private readonly readout = h("p", { class: "readout", "aria-live": "polite" });
  readonly element = h("section", { class: "card map" }, this.head, this.controls, this.body, this.readout);
  private chart: MapChart | null = null;
  private shown: { maps: Packed<MapHeader>; panel: MapPanel; metric: Metric } | null = null;
  private reach: number | null = null; // of the colours, where another run beside it has the same

  readonly colours: SharedColours = {
    own: () => this.shown && { key: this.shown.metric.name, reach: reachOf(this.shown.panel) },
    share: (reach) => {
      if (this.reach === reach || !this.shown) return;
      this.reach = reach;
      this.chart?.show(this.shared(this.shown.panel));
    },
  };

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
    const metric = this.metric(maps);
    const panel = this.panel(maps, metric);
    this.draw(this.shared(panel), this.shown?.maps === maps && this.shown.metric === metric);
    this.shown = { maps, panel, metric };
    keepingFocus(this.controls, () => replace(this.controls, ...this.menus(metric)));
    replace(this.head, head(panel));
    const [i, j] = [pane.layer - 1, pane.head - 1];
    const cell = interval(panel.value[i][j], panel.low[i][j], panel.high[i][j]);
    replace(this.readout, `Layer ${pane.layer}, head ${pane.head}: `, h("b", {}, cell), ` \u00b7 n = ${maps.header.n}`);
  }

  private shared(panel: MapPanel): MapPanel {
    return this.reach === null ? panel : { ...panel, reach: this.reach };
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
    replace(this.body, this.chart.element);
  }

  /** The one chosen; else the first that is known for this condition and these queries. */
  private metric({ arrays }: Packed<MapHeader>): Metric {
    const { metrics } = this.pane.overview;
    const known = metrics.find((one) => arrays.get(`${one.name}/value`)?.values.some(Number.isFinite));
    return metrics.find((one) => one.name === this.pane.state.metric) ?? known ?? metrics[0];
  }

  private menus(metric: Metric): (HTMLElement | null)[] {
    const { pane } = this;
    const metrics = pane.overview.metrics.map((one): [string, string] => [one.name, one.label]);
    const queries = pane.overview.queries.map((one): [string, string] => [one, QUERIES[one] ?? one]);
    return [
      pane.modelMenu(),
      select("Metric", metrics, metric.name, (name) => pane.go({ metric: name })),
      pane.conditionMenu(),
      select("Queries", queries, pane.queries, (name) => pane.go({ queries: name })),
    ];
  }

  private panel(maps: Packed<MapHeader>, metric: Metric): MapPanel {
    const { pane } = this;
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
