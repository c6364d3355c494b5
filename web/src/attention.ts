// Layers and heads at a glance, one head's profile, all heads of a layer, and one problem beside the mean.

import type { Packed } from "./api";
import { files, legend } from "./card";
import { choice, h, keepingFocus, replace, select, toggle } from "./dom";
import { LineChart } from "./linechart";
import { MapChart } from "./mapchart";
import { Multiples } from "./multiples";
import { empty, Turn, type Pane, type Tab } from "./pane";
import type { Line, LinePanel, MapPanel, Region, Scale } from "./panels";
import { joined } from "./state";
import { interval, visible } from "./text";

interface Tokens {
  aligned: string[];
  whole: Record<string, string[]>;
  regions: Region[];
}

const VIEWS: [string, string][] = [
  ["aligned", "Aligned"],
  ["whole", "Whole prompt"],
  ["difference", "Difference"],
  ["logratio", "Log ratio"],
];
const TITLES: Record<string, string> = { whole: ", whole prompt", difference: ", difference to none", logratio: ", log ratio to none" };
const AXES: Record<string, string> = {
  aligned: "Average Attention Weight",
  whole: "Average Attention Weight",
  difference: "Difference to none",
  logratio: "Log of the ratio to none",
};
const BANDS: [string, string][] = [
  ["interval", "95% interval"],
  ["sd", "Standard deviation"],
  ["none", "No band"],
];
const QUERIES: Record<string, string> = {
  all: "all tokens", original: "original tokens", last: "last token", answer: "the answer's tokens",
};

export class AttentionTab implements Tab {
  readonly element = h("div", { class: "attention" });
  private readonly mapControls = h("div", { class: "controls" });
  private readonly mapHead = h("header", { class: "card-head" });
  private readonly mapBody = h("div", { class: "card-body" });
  private readonly readout = h("p", { class: "readout", "aria-live": "polite" });
  private readonly profile = h("section", { class: "card profile" });
  private readonly note = h("p", { class: "note", role: "status" });
  private readonly multiples: Multiples;
  private map: MapChart | null = null;
  private chart: LineChart | null = null;
  private readonly turn = new Turn();
  private readonly profileTurn = new Turn();
  private shown: { found: Packed; key: string } | null = null;
  private ready: { reason: string; note: string } | null = null;

  constructor(private readonly pane: Pane) {
    const map = h("section", { class: "card map" }, this.mapHead, this.mapControls, this.mapBody, this.readout);
    this.multiples = new Multiples(pane);
    this.element.append(map, h("div", { class: "column" }, this.profile, this.multiples.element));
  }

  destroy(): void {
    this.map?.destroy();
    this.chart?.destroy();
    this.multiples.destroy();
  }

  async update(): Promise<void> {
    const { pane } = this;
    if (!pane.overview.has.attention) throw new Error("This run did not measure attention.");
    if (!pane.model.layers) throw new Error("No shard has landed yet.");
    const mine = this.turn.take();
    const tokens = await pane.api.json<Tokens>("tokens", { model: pane.model.name });
    await Promise.all([this.drawMap(mine), this.drawProfile(tokens, mine), this.multiples.update(mine, this.view, tokens.regions)]);
  }

  private get metric(): { name: string; label: string; scale: string } {
    const { metrics } = this.pane.overview;
    return metrics.find((one) => one.name === this.pane.address.get("metric")) ?? metrics[0];
  }

  private get view(): string {
    const wanted = this.pane.address.get("view", "aligned");
    return VIEWS.some(([name]) => name === wanted) && this.pane.fillers.length ? wanted : "aligned";
  }

  private async drawMap(mine: () => boolean): Promise<void> {
    const { pane } = this;
    if (!pane.fillers.length) return replace(this.mapBody, empty("The study has no condition to compare with none."));
    const found = await pane.api.packed("map", { model: pane.model.name, condition: pane.condition, queries: pane.queries });
    if (!mine()) return;
    const panel = this.mapPanel(found);
    const chosen: [number, number] = [pane.layer - 1, pane.head - 1];
    if (this.map) {
      this.map.show(panel);
      this.map.choose(...chosen);
    } else {
      const choose = (row: number, column: number) => pane.address.set({ layer: row + 1, head: column + 1 });
      this.map = new MapChart(panel, { chosen, choose, highest: 620 });
      this.mapBody.append(this.map.element);
    }
    keepingFocus(this.mapControls, () => replace(this.mapControls, ...this.mapMenus()));
    replace(this.mapHead, h("h3", {}, h("bdi", {}, visible(panel.title))), files(panel, () => ({})));
    const cell = interval(panel.value[chosen[0]][chosen[1]], panel.low[chosen[0]][chosen[1]], panel.high[chosen[0]][chosen[1]]);
    replace(this.readout, `Layer ${pane.layer}, head ${pane.head}: `, h("b", {}, cell), ` \u00b7 n = ${found.header.n}`);
  }

  private mapMenus(): (HTMLElement | null)[] {
    const { pane } = this;
    const metrics = pane.overview.metrics.map((one): [string, string] => [one.name, one.label]);
    const queries = pane.overview.queries.map((one): [string, string] => [one, QUERIES[one] ?? one]);
    return [
      pane.modelMenu(),
      select("Metric", metrics, this.metric.name, (metric) => pane.address.set({ metric })),
      pane.conditionMenu(),
      select("Queries", queries, pane.queries, (name) => pane.address.set({ queries: name })),
    ];
  }

  private mapPanel(found: Packed): MapPanel {
    const { pane, metric } = this;
    const { layers, heads } = pane.model;
    const rows = (part: string) => {
      const { values } = found.arrays.get(`${metric.name}/${part}`)!;
      return Array.from({ length: layers }, (_, i) => values.subarray(i * heads, (i + 1) * heads));
    };
    return {
      kind: "map",
      title: `${pane.model.label}, ${pane.label(pane.condition)} against none`,
      down: "layer",
      across: "head",
      rows: Array.from({ length: layers }, (_, i) => i + 1),
      columns: Array.from({ length: heads }, (_, i) => i + 1),
      scale: metric.scale as Scale,
      name: metric.label,
      colour: rows("value"),
      value: rows("value"),
      low: rows("low"),
      high: rows("high"),
    };
  }

  private async drawProfile(tokens: Tokens, mine: () => boolean): Promise<void> {
    const { pane, view } = this;
    const asked = { model: pane.model.name, layer: pane.layer, head: pane.head, queries: pane.queries, view };
    const found = await pane.api.packed("head", asked);
    this.ready = await pane.api.json<{ reason: string; note: string }>("ready", { model: pane.model.name });
    if (!mine()) return;
    const key = ["condition", "off", "band", "first", "x", "problem"].map((name) => pane.address.get(name)).join("&");
    if (this.shown?.found === found && this.shown.key === key) return;
    const panel = this.profilePanel(found, tokens);
    this.showProfile(panel);
    this.shown = { found, key };
    await this.addProblem(asked, panel, this.profileTurn.take());
  }

  private profilePanel(found: Packed, tokens: Tokens): LinePanel {
    const { pane, view } = this;
    const names = pane.overview.conditions.map((one) => one.name).filter((name) => found.arrays.has(`${name}/mean`));
    const regions = tokens.regions.filter((region) => names.includes(region.condition));
    const main = regions.find((region) => region.condition === pane.condition);
    const aligned = view !== "whole";
    return {
      kind: "lines",
      title: `${pane.model.label} Layer ${pane.layer} Head ${pane.head}${TITLES[view] ?? ""}`,
      x: "Token position",
      y: AXES[view],
      zero: view === "aligned" || view === "whole",
      none: view === "difference" || view === "logratio" ? 0 : null,
      series: [...this.twins(found), ...names.map((name) => this.line(name, found))],
      regions: aligned ? [] : regions,
      cuts: aligned && main?.fixed ? [{ at: main.start - 0.5, label: "filler" }] : [],
      tokens: aligned ? tokens.aligned : (tokens.whole[pane.condition] ?? tokens.aligned),
    };
  }

  /** Untrained twins under the main condition: mean and range over all their heads of the layer. */
  private twins(found: Packed): Line[] {
    const arrays = ["mean", "low", "high"].map((part) => found.arrays.get(`untrained twins/${part}`)?.values);
    if (arrays.some((values) => values === undefined)) return [];
    const main = this.pane.overview.main ?? "none";
    const reach = found.header.reach as Record<string, number>;
    const start = this.first ? 0 : 1;
    const [y, low, high] = arrays.map((values) => values!.subarray(start, reach[main]));
    const x = Array.from(y, (_, i) => start + i);
    return [{ label: `Untrained twins, ${this.pane.label(main)}`, condition: "untrained twins", style: 6, dash: 7, x, y, low, high }];
  }

  private line(name: string, found: Packed, thin = false): Line {
    const { pane } = this;
    const of = (part: string) => found.arrays.get(`${name}/${part}`)!.values;
    const stop = (found.header.reach as Record<string, number>)[name];
    const start = this.first ? 0 : 1;
    const cut = (values: Float32Array) => values.subarray(start, stop);
    const [mean, sd] = [cut(of("mean")), cut(of("sd"))];
    const wide = this.band === "sd";
    return {
      label: pane.label(name),
      condition: name,
      style: pane.style(name),
      dash: pane.style(name),
      x: Array.from(mean, (_, i) => start + i),
      y: mean,
      low: thin ? undefined : wide ? mean.map((value, i) => value - sd[i]) : cut(of("low")),
      high: thin ? undefined : wide ? mean.map((value, i) => value + sd[i]) : cut(of("high")),
      n: cut(of("n")),
      thin,
    };
  }

  private get first(): boolean {
    return this.pane.address.get("first", this.pane.overview.skip_first ? "0" : "1") === "1";
  }

  private get band(): string {
    return this.pane.address.get("band", "interval");
  }

  private showProfile(panel: LinePanel): void {
    const { pane } = this;
    const off = pane.address.list("off");
    const labels = new Set(panel.series.filter((line) => off.has(line.condition!)).map((line) => line.label));
    const range = pane.address.get("x").split("~").map(Number);
    const options = {
      height: 330,
      band: this.band !== "none",
      off: labels,
      range: range.length === 2 && range.every(Number.isFinite) ? ([range[0], range[1]] as [number, number]) : null,
      zoomed: (found: [number, number] | null) => {
        pane.address.set({ x: found && found.map((x) => x.toFixed(1)).join("~") }, false);
        this.shown = null;
      },
      switched: (found: Set<string>) => {
        const names = panel.series.filter((line) => found.has(line.label)).map((line) => line.condition!);
        pane.address.set({ off: joined(new Set(names)) });
      },
    };
    this.chart?.destroy();
    this.chart = new LineChart(panel, options);
    const view = () => ({ off: options.off, band: options.band, range: this.chart!.range });
    const head = h("header", { class: "card-head" }, h("h3", {}, h("bdi", {}, visible(panel.title))), files(panel, view));
    const hint = h("p", { class: "hint" }, "Drag to zoom, double-click for all. Arrow keys read values, + and \u2212 zoom.");
    keepingFocus(this.profile, () =>
      replace(this.profile, head, h("div", { class: "controls" }, ...this.profileMenus()), legend(panel, options, this.chart!), this.chart!.element, hint, this.note),
    );
  }

  private profileMenus(): HTMLElement[] {
    const { pane } = this;
    const views = pane.fillers.length ? VIEWS : VIEWS.slice(0, 1);
    const problems = (pane.model.problems ?? []).map((one): [string, string] => [String(one.number), visible(one.id)]);
    const problem = select("One problem", [["", "mean only"], ...problems], pane.address.get("problem"), (number) => pane.address.set({ problem: number }), "problem");
    if (this.ready?.reason) problem.querySelector("select")!.disabled = true;
    return [
      choice("View", views, this.view, (view) => pane.address.set({ view, x: null })),
      select("Band", BANDS, this.band, (band) => pane.address.set({ band })),
      toggle("First token", this.first, (on) => pane.address.set({ first: on ? 1 : 0 })),
      problem,
    ];
  }

  /** One problem is measured again, which takes a moment, and may not be possible here. */
  private async addProblem(asked: Record<string, string | number>, panel: LinePanel, mine: () => boolean): Promise<void> {
    const { pane } = this;
    const problem = pane.address.get("problem");
    replace(this.note, this.ready?.reason ? `One problem's own profile cannot be shown here: ${visible(this.ready.reason)}` : "");
    if (!problem || this.ready?.reason) return;
    replace(this.note, "Measuring this problem again with the model \u2026");
    try {
      const own = await pane.api.packed("problem", { ...asked, problem });
      if (!mine()) return;
      const lines = Object.keys(own.header.reach as object).map((name) => this.line(name, own, true));
      const named = lines.map((line) => ({ ...line, label: `${line.label}, this problem` }));
      this.showProfile({ ...panel, series: [...panel.series, ...named] });
      replace(this.note, visible(String(own.header.note)));
    } catch (error) {
      if (mine()) replace(this.note, `This problem's own profile cannot be shown: ${visible((error as Error).message)}`);
    }
  }
}
