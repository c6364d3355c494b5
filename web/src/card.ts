// A panel on the page: title, legend whose entries switch lines on and off, the chart, and its files.

import { download, panelCsv } from "./csv";
import { h, keepingFocus, replace, s } from "./dom";
import { LineChart, type LineOptions } from "./linechart";
import { MapChart, type MapOptions } from "./mapchart";
import type { BarPanel, LinePanel, Panel } from "./panels";
import { barSvg, paperSvg, png, serialised, type View } from "./svg";
import { interval, visible } from "./text";
import { DASHES, ink, lineVariable, onTheme, theme } from "./theme";

interface CardOptions extends LineOptions, MapOptions {
  switched?: (off: Set<string>) => void;
  legend?: boolean;
  file?: string;
}

export interface Card {
  element: HTMLElement;
  chart: LineChart | MapChart | null;
  destroy: () => void;
}

export function card(panel: Panel, options: CardOptions = {}): Card {
  const body = h("div", { class: "card-body" });
  const drawn = chartOf(panel, options);
  body.append(drawn.element);
  const view = (): View => ({
    off: options.off ?? new Set(),
    band: options.band ?? true,
    range: drawn.chart instanceof LineChart ? drawn.chart.range : null,
  });
  const head = h("header", { class: "card-head" }, h("h3", {}, h("bdi", {}, visible(panel.title))), files(panel, view, options.file));
  const names = panel.kind === "lines" && options.legend !== false ? legend(panel, options, drawn.chart as LineChart) : null;
  const element = h("section", { class: `card ${panel.kind}`, "data-title": panel.title }, head, names, body);
  return { ...drawn, element };
}

function chartOf(panel: Panel, options: CardOptions): Card {
  if (panel.kind === "lines") {
    const chart = new LineChart(panel, options);
    return { element: chart.element, chart, destroy: () => chart.destroy() };
  }
  if (panel.kind === "map") {
    const chart = new MapChart(panel, options);
    return { element: chart.element, chart, destroy: () => chart.destroy() };
  }
  return bars(panel);
}

/** Buttons that save what is on the screen. */
export function files(panel: Panel, view: () => View, name?: string): HTMLElement {
  const file = name ?? panel.title;
  const picture = () => paperSvg(panel, view());
  const save: Record<string, () => void> = {
    SVG: () => download(`${file}.svg`, serialised(picture()), "image/svg+xml"),
    PNG: () => void png(picture()).then((blob) => download(`${file}.png`, blob)),
    CSV: () => download(`${file}.csv`, panelCsv(panel, view().off, view().range ?? undefined)),
  };
  const buttons = Object.entries(save).map(([kind, act]) =>
    h("button", { type: "button", class: "file", "data-kind": kind.toLowerCase(), title: `Save this as ${kind}`, click: act }, kind),
  );
  return h("div", { class: "files", role: "group", "aria-label": "Save" }, ...buttons);
}

export function legend(panel: LinePanel, options: CardOptions, chart: LineChart): HTMLElement {
  const list = h("div", { class: "legend", role: "group", "aria-label": "Lines on and off" });
  const draw = () => {
    const off = options.off ?? new Set<string>();
    replace(
      list,
      ...panel.series.map((line) => {
        const flip = () => {
          const next = new Set(off);
          if (!next.delete(line.label)) next.add(line.label);
          options.off = next;
          chart.show(next);
          options.switched?.(next);
          keepingFocus(list, draw);
        };
        return h(
          "button",
          { type: "button", "aria-pressed": String(!off.has(line.label)), "data-condition": line.condition ?? line.label, click: flip },
          swatch(line.style, line.dash),
          h("bdi", {}, visible(line.label)),
        );
      }),
    );
  };
  draw();
  return list;
}

function swatch(style: number, dash: number): SVGElement {
  const stroke = { stroke: lineVariable(style), "stroke-width": 2.4, "stroke-dasharray": DASHES[dash % DASHES.length].join(" ") };
  return s("svg", { width: 26, height: 10, "aria-hidden": "true" }, s("line", { x1: 0, x2: 26, y1: 5, y2: 5, ...stroke }));
}

function bars(panel: BarPanel): Card {
  const ground = h("div", { class: "bars-ground" });
  const tip = h("div", { class: "tip", role: "status" });
  const names = new Map(panel.groups.flatMap((group) => group.bars.map((bar) => [bar.label, bar.style] as const)));
  const key = () => h("div", { class: "legend still" }, ...[...names].map(([label, style]) => h("span", {}, dot(style), h("bdi", {}, visible(label)))));
  const holder = h("div", {});
  const element = h("div", { class: "barchart", tabindex: "0", role: "img", "aria-label": described(panel) }, holder, ground, tip);
  const draw = () => {
    const width = element.clientWidth;
    if (!width) return;
    replace(holder, names.size > 1 ? key() : null);
    const inks = { text: ink("text"), soft: ink("soft"), line: ink("line"), ground: "", shade: ink("shade") };
    const picture = barSvg(panel, width, 300, inks, theme(), false);
    const all = panel.groups.flatMap((group) => group.bars.map((bar) => ({ group: group.label, bar })));
    picture.querySelectorAll<SVGElement>("g.bar").forEach((mark, i) => {
      const { group, bar } = all[i];
      mark.addEventListener("mouseenter", () => {
        tip.classList.add("on");
        const value = interval(bar.value, bar.low, bar.high);
        replace(
          tip,
          h("div", { class: "tip-head" }, h("bdi", {}, visible(group)), " \u00b7 ", h("bdi", {}, visible(bar.label))),
          h("div", {}, h("b", {}, value), bar.n === null || bar.n === undefined ? null : ` n = ${bar.n}`),
          bar.note ? h("div", {}, bar.note) : null,
        );
        const box = mark.getBoundingClientRect();
        const host = element.getBoundingClientRect();
        const right = box.left - host.left > host.width / 2;
        tip.style.left = right ? "" : `${box.right - host.left + 8}px`;
        tip.style.right = right ? `${host.right - box.left + 8}px` : "";
        tip.style.top = `${Math.max(0, box.top - host.top)}px`;
      });
      mark.addEventListener("mouseleave", () => tip.classList.remove("on"));
    });
    replace(ground, picture);
  };
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  const end = onTheme(draw);
  return { element, chart: null, destroy: () => (watcher.disconnect(), end()) };
}

function dot(style: number): HTMLElement {
  return h("i", { class: "dot", style: `background:${lineVariable(style)}` });
}

function described(panel: BarPanel): string {
  const told = panel.groups.flatMap((group) =>
    group.bars.map((bar) => `${group.label}, ${bar.label}: ${interval(bar.value, bar.low, bar.high)}`),
  );
  return visible(`${panel.title}. ${told.join("; ")}`);
}
