// A panel on the page: title, legend whose entries switch lines on and off, the chart, and its files.

import { BarChart } from "../charts/barchart";
import { paperPicture } from "../charts/files";
import { lineVariable, PAPER } from "../charts/inks";
import { LineChart, type LineOptions } from "../charts/linechart";
import { MapChart, type MapOptions } from "../charts/mapchart";
import { line } from "../charts/marks";
import { MatrixChart } from "../charts/matrixchart";
import { chart as painted, pngFile, svgFile } from "../charts/paint";
import { dashes } from "../charts/palette";
import { panelCsv } from "../data/csv";
import type { LinePanel, Panel, View } from "../data/panels";
import { h, keepingFocus, replace } from "./dom";
import { download } from "./download";
import { visible } from "./text";

export interface CardOptions extends LineOptions, MapOptions {
  switched?: (off: Set<string>) => void;
  file?: string;
}

export interface Card {
  element: HTMLElement;
  destroy: () => void;
}

const EVERYTHING: View = { off: new Set(), band: true, range: null };

export function card(panel: Panel, options: CardOptions = {}): Card {
  const chart = chartOf(panel, options);
  const view = () => (chart instanceof LineChart || chart instanceof MatrixChart ? chart.view : EVERYTHING);
  const names = panel.kind === "lines" ? legend(panel, options, chart as LineChart) : null;
  const body = h("div", { class: "card-body" }, chart.element);
  const element = h(
    "section",
    { class: `card ${panel.kind}`, "data-title": panel.title },
    head(panel, view, options.file),
    names,
    body,
  );
  return { element, destroy: () => chart.destroy() };
}

function chartOf(panel: Panel, options: CardOptions): LineChart | MapChart | BarChart | MatrixChart {
  if (panel.kind === "matrix") return new MatrixChart(panel);
  if (panel.kind === "lines") return new LineChart(panel, options);
  return panel.kind === "map" ? new MapChart(panel, options) : new BarChart(panel);
}

/** Title of a panel and buttons that save what is on the screen. */
export function head(panel: Panel, view: () => View = () => EVERYTHING, file = panel.title): HTMLElement {
  const title = h("h3", {}, h("bdi", {}, visible(panel.title)));
  return h("header", { class: "card-head" }, title, files(panel, view, file));
}

function files(panel: Panel, view: () => View, file: string): HTMLElement {
  const picture = () => paperPicture(panel, view());
  const svg = () => svgFile(picture(), PAPER.ground);
  const save: Record<string, () => void> = {
    SVG: () => download(`${file}.svg`, svg(), "image/svg+xml"),
    PNG: () => void pngFile(svg(), picture()).then((blob) => download(`${file}.png`, blob)),
    CSV: () => download(`${file}.csv`, panelCsv(panel, view())),
  };
  const buttons = Object.entries(save).map(([kind, act]) =>
    h(
      "button",
      { type: "button", class: "file", "data-kind": kind.toLowerCase(), title: `Save this as ${kind}`, click: act },
      kind,
    ),
  );
  return h("div", { class: "files", role: "group", "aria-label": "Save" }, ...buttons);
}

/** A button for each line that switches it on and off. */
export function legend(panel: LinePanel, options: CardOptions, chart: LineChart): HTMLElement {
  const list = h("div", { class: "legend", role: "group", "aria-label": "Lines on and off" });
  const flip = (label: string) => {
    const next = new Set(options.off);
    if (!next.delete(label)) next.add(label);
    options.off = next;
    chart.show(next);
    options.switched?.(next);
    keepingFocus(list, draw);
  };
  const draw = () => {
    const buttons = panel.series.map(({ label, condition, style, dash }) => {
      const on = !options.off?.has(label);
      const marks = { type: "button", "aria-pressed": String(on), "data-condition": condition ?? label };
      return h("button", { ...marks, click: () => flip(label) }, swatch(style, dash), h("bdi", {}, visible(label)));
    });
    replace(list, ...buttons);
  };
  draw();
  return list;
}

function swatch(style: number, dash: number): SVGElement {
  const stroke = { stroke: lineVariable(style), "stroke-width": 2.4, "stroke-dasharray": dashes(dash) };
  return painted({ width: 26, height: 10, marks: [line([0, 5], [26, 5], stroke)] }, { class: "swatch" });
}
