// Pictures as SVG: bars on the page, and everything on the screen as a file on white paper.

import { s } from "./dom";
import {
  binOf, clipped, finite, reach, regionsOf, short, shownValues, ticks, type Bar, type BarPanel, type Line, type LinePanel, type MapPanel, type Panel,
} from "./panels";
import { coloursOf, isOpen, named } from "./scales";
import { token, visible } from "./text";
import { DASHES, lineColour, PAPER, type Theme } from "./theme";

interface Inks { text: string; soft: string; line: string; ground: string; shade: string }
export interface View { off?: Set<string>; band?: boolean; range?: [number, number] | null }
type Point = [number, number];

const FONT = "system-ui, 'DejaVu Sans', sans-serif";
const [WIDTH, HEIGHT] = [760, 380];

/** What is on the screen, complete with title, legend and axes, as it goes on paper. */
export function paperSvg(panel: Panel, view: View = {}): SVGElement {
  if (panel.kind === "bars") return barSvg(panel, WIDTH, HEIGHT, PAPER, "light", true);
  return panel.kind === "map" ? mapSvg(panel) : lineSvg(panel, view);
}

export function serialised(picture: SVGElement): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}\n`;
}

/** The same picture as PNG, three pixels for one. */
export async function png(picture: SVGElement, scale = 3): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([serialised(picture)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = scale * Number(picture.getAttribute("width"));
    canvas.height = scale * Number(picture.getAttribute("height"));
    const context = canvas.getContext("2d")!;
    context.scale(scale, scale);
    context.drawImage(image, 0, 0);
    return await new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture")))));
  } finally {
    URL.revokeObjectURL(address);
  }
}

function page(width: number, height: number, ground: string, ...children: (SVGElement | null)[]): SVGElement {
  return s(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 12 },
    ground ? s("rect", { width, height, fill: ground }) : null,
    ...children,
  );
}

function text(x: number, y: number, words: string, more: Record<string, unknown> = {}): SVGElement {
  return s("text", { x, y, fill: PAPER.text, direction: "ltr", "unicode-bidi": "isolate", ...more }, visible(words));
}

function lineSvg(panel: LinePanel, view: View): SVGElement {
  const off = view.off ?? new Set<string>();
  const lines = panel.series.filter((line) => !off.has(line.label));
  const legend = legendRows(lines.map((line) => line.label), WIDTH - 90);
  const xs = lines.flatMap((line) => Array.from(line.x));
  const ends: Point = [Math.min(...xs), Math.max(...xs)];
  const all: Point = panel.steps ? [ends[0], ends[1] + 1] : panel.tokens ? [ends[0] - 0.5, ends[1] + 0.5] : reach(xs);
  const [x0, x1] = view.range ?? all;
  const near = Boolean(panel.tokens?.length) && (x1 - x0) * 13 < WIDTH - 82;
  const box = { left: 66, right: WIDTH - 16, top: 40 + 18 * legend.length, bottom: HEIGHT - (near ? 92 : 48) };
  const kept = (line: Line) => Array.from(line.x, (_, i) => i).filter((i) => line.x[i] >= x0 && line.x[i] <= x1);
  const shown = { ...panel, series: lines.map((line) => picked(line, kept(line))) };
  const band = view.band ?? true;
  const [y0, y1] = reach(shownValues(shown, off, band), panel.zero, panel.none);
  const px = (x: number) => box.left + ((x - x0) / (x1 - x0)) * (box.right - box.left);
  const py = (y: number) => box.bottom - ((y - y0) / (y1 - y0)) * (box.bottom - box.top);
  const parts: (SVGElement | null)[] = [text(box.left, 22, panel.title, { "font-size": 14, "font-weight": 600 })];
  for (const { start, stop, label } of regionsOf(panel, off)) {
    if (stop < x0 || start > x1) continue;
    const [left, right] = [Math.max(box.left, px(start - 0.5)), Math.min(box.right, px(stop - 0.5))];
    parts.push(s("rect", { x: left, y: box.top, width: right - left, height: box.bottom - box.top, fill: PAPER.shade, "fill-opacity": 0.16 }));
    for (const x of [left, right]) parts.push(s("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, stroke: PAPER.soft, "stroke-dasharray": "3 3" }));
    parts.push(text(left + 5, box.top + 14, label, { fill: PAPER.soft, "font-size": 11 }));
  }
  for (const { at } of panel.cuts ?? []) {
    if (at > x0 && at < x1) parts.push(s("line", { x1: px(at), x2: px(at), y1: box.top, y2: box.bottom, stroke: PAPER.soft, "stroke-dasharray": "4 3" }));
  }
  for (const edge of panel.eps && panel.edges ? [-panel.eps, panel.eps] : []) {
    const x = px(binOf(panel.edges!, edge));
    if (x >= box.left && x <= box.right) parts.push(s("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, stroke: PAPER.soft, "stroke-dasharray": "4 3", "data-mark": "threshold" }));
  }
  parts.push(...yAxis(ticks(y0, y1), py, box, panel.y), ...xAxis(panel, x0, x1, px, box, near));
  if (finite(panel.none)) parts.push(s("line", { x1: box.left, x2: box.right, y1: py(panel.none), y2: py(panel.none), stroke: PAPER.soft }));
  for (const line of shown.series) {
    const colour = lineColour(line.style, "light");
    const area = band ? bandPath(line, px, py) : "";
    if (area) parts.push(s("path", { d: area, fill: colour, "fill-opacity": 0.18 }));
    const dash = DASHES[line.dash % DASHES.length].join(" ");
    const d = panel.steps ? stepPath(line, px, py) : linePath(line, px, py);
    parts.push(s("path", { d, fill: "none", stroke: colour, "stroke-width": line.thin ? 1 : 1.7, "stroke-dasharray": dash, "data-series": visible(line.label) }));
  }
  parts.push(...legendSvg(legend, lines, box.left));
  return page(WIDTH, HEIGHT, PAPER.ground, ...parts);
}

function picked(line: Line, places: number[]): Line {
  const of = (values: ArrayLike<number | null> | undefined) => values && places.map((i) => values[i]);
  return { ...line, x: places.map((i) => line.x[i]), y: of(line.y)!, low: of(line.low), high: of(line.high), n: of(line.n) };
}

function linePath(line: Line, px: (x: number) => number, py: (y: number) => number): string {
  let pen = "M";
  let d = "";
  for (let i = 0; i < line.x.length; i++) {
    const y = line.y[i];
    if (!finite(y)) {
      pen = "M";
      continue;
    }
    d += `${pen}${round(px(line.x[i]))} ${round(py(y))}`;
    pen = "L";
  }
  return d;
}

function stepPath(line: Line, px: (x: number) => number, py: (y: number) => number): string {
  return Array.from(line.x, (x, i) => `${i ? "L" : "M"}${round(px(x))} ${round(py(line.y[i] ?? 0))}H${round(px(x + 1))}`).join("");
}

function bandPath(line: Line, px: (x: number) => number, py: (y: number) => number): string {
  if (!line.low || !line.high) return "";
  const there = Array.from(line.x, (_, i) => i).filter((i) => finite(line.low![i]) && finite(line.high![i]));
  if (there.length < 2) return "";
  const up = there.map((i) => `${round(px(line.x[i]))} ${round(py(line.high![i]!))}`);
  const down = there.reverse().map((i) => `${round(px(line.x[i]))} ${round(py(line.low![i]!))}`);
  return `M${[...up, ...down].join("L")}Z`;
}

interface Box { left: number; right: number; top: number; bottom: number }

function yAxis(places: number[], py: (y: number) => number, box: Box, label: string, inks: Inks = PAPER): SVGElement[] {
  const middle = (box.top + box.bottom) / 2;
  const found = places.flatMap((y) => [
    s("line", { x1: box.left, x2: box.right, y1: py(y), y2: py(y), stroke: inks.line }),
    text(box.left - 6, py(y) + 4, short(y), { "text-anchor": "end", fill: inks.soft, "font-size": 11 }),
  ]);
  const turned = { "text-anchor": "middle", transform: `rotate(-90 14 ${middle})`, fill: inks.soft };
  return [...found, text(14, middle, label, turned)];
}

function xAxis(panel: LinePanel, x0: number, x1: number, px: (x: number) => number, box: Box, near: boolean): SVGElement[] {
  const whole = ticks(x0, x1, 10).filter((x) => Number.isInteger(x));
  const places = near ? Array.from({ length: Math.floor(x1) - Math.ceil(x0) + 1 }, (_, i) => Math.ceil(x0) + i) : whole;
  const name = (x: number) => (panel.edges ? short(panel.edges[x] ?? Number.NaN) : near ? `${clipped(token(panel.tokens![x] ?? ""))} ${x}`.trim() : String(x));
  const found = places.map((x) => {
    const [at, down] = [px(x) + (near ? 3 : 0), box.bottom + (near ? 6 : 16)];
    const turned = near ? { transform: `rotate(-90 ${at} ${down})`, "text-anchor": "end" } : { "text-anchor": "middle" };
    return text(at, down, name(x), { ...turned, fill: PAPER.soft, "font-size": near ? 9 : 11 });
  });
  const axis = s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: PAPER.soft });
  return [axis, ...found, text((box.left + box.right) / 2, HEIGHT - 8, panel.x, { "text-anchor": "middle", fill: PAPER.soft })];
}

/** Labels in as many rows as they need. */
function legendRows(labels: string[], width: number): string[][] {
  const rows: string[][] = [[]];
  let used = 0;
  for (const label of labels) {
    const room = 48 + 7 * [...label].length;
    if (used + room > width && rows.at(-1)!.length) {
      rows.push([]);
      used = 0;
    }
    rows.at(-1)!.push(label);
    used += room;
  }
  return rows;
}

function legendSvg(rows: string[][], lines: Line[], left: number): SVGElement[] {
  return rows.flatMap((row, i) => {
    let x = left;
    return row.flatMap((label) => {
      const line = lines.find((one) => one.label === label)!;
      const at = x;
      x += 48 + 7 * [...label].length;
      const y = 40 + 18 * i;
      const stroke = { stroke: lineColour(line.style, "light"), "stroke-width": 2, "stroke-dasharray": DASHES[line.dash % DASHES.length].join(" ") };
      return [s("line", { x1: at, x2: at + 28, y1: y - 4, y2: y - 4, ...stroke }), text(at + 34, y, label)];
    });
  });
}

/** Bars or points in groups, with intervals. On the page in its colours, in a file with title and names of all bars. */
export function barSvg(
  panel: BarPanel, width: number, height: number, inks: Inks, theme: Theme, alone: boolean,
): SVGElement {
  const bars = panel.groups.flatMap((group) => group.bars);
  const labels = [...new Map(bars.map((bar) => [bar.label, bar])).values()];
  const legend = alone ? legendRows(labels.map((bar) => bar.label), width - 90) : [];
  const turned = panel.groups.some((group) => 6.6 * [...group.label].length > (width - 80) / panel.groups.length);
  const box = { left: 62, right: width - 10, top: alone ? 40 + 18 * legend.length : 22, bottom: height - (turned ? 96 : 34) };
  const zero = panel.mark === "bar";
  const values = bars.flatMap((bar) => [bar.value, bar.low, bar.high, bar.published]);
  const [y0, y1] = reach(values, zero, panel.none);
  const py = (y: number) => box.bottom - ((y - y0) / (y1 - y0)) * (box.bottom - box.top);
  const pitch = (box.right - box.left) / panel.groups.length;
  const parts: (SVGElement | null)[] = [...yAxis(ticks(y0, y1, height / 55), py, box, panel.y, inks)];
  if (alone) parts.unshift(text(box.left, 22, panel.title, { "font-size": 14, "font-weight": 600, fill: inks.text }));
  if (finite(panel.none)) parts.push(s("line", { x1: box.left, x2: box.right, y1: py(panel.none), y2: py(panel.none), stroke: inks.soft }));
  panel.groups.forEach((group, i) => {
    const middle = box.left + pitch * (i + 0.5);
    const step = Math.min(46, (0.84 * pitch) / group.bars.length);
    group.bars.forEach((bar, j) => {
      const x = middle + step * (j - (group.bars.length - 1) / 2);
      parts.push(oneBar(bar, x, 0.78 * step, py, Math.max(y0, zero ? 0 : y0), panel.mark, inks, theme));
    });
    const where = turned ? { transform: `rotate(-35 ${middle} ${box.bottom + 14})`, "text-anchor": "end" } : { "text-anchor": "middle" };
    parts.push(text(middle, box.bottom + 18, group.label, { ...where, fill: inks.soft, "font-size": turned ? 10 : 12 }));
  });
  parts.push(s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: inks.soft }));
  if (alone) parts.push(...barLegend(legend, labels, box.left, theme, inks));
  return page(width, height, alone ? inks.ground : "", ...parts);
}

function oneBar(
  bar: Bar, x: number, width: number, py: (y: number) => number, base: number, mark: string, inks: Inks, theme: Theme,
): SVGElement {
  const colour = lineColour(bar.style, theme);
  const group = s("g", { class: "bar", "data-condition": bar.condition });
  if (!finite(bar.value)) return group;
  const y = py(bar.value);
  if (mark === "bar") group.append(s("rect", { x: x - width / 2, y, width, height: Math.max(0, py(base) - y), fill: colour, "fill-opacity": 0.82 }));
  if (finite(bar.low) && finite(bar.high)) {
    const cap = Math.min(5, width / 4);
    const d = `M${round(x)} ${round(py(bar.low))}V${round(py(bar.high))}M${round(x - cap)} ${round(py(bar.low))}H${round(x + cap)}M${round(x - cap)} ${round(py(bar.high))}H${round(x + cap)}`;
    group.append(s("path", { d, stroke: mark === "bar" ? inks.text : colour, "stroke-width": 1.3, fill: "none" }));
  }
  if (mark === "point") group.append(s("circle", { cx: x, cy: y, r: 4, fill: colour }));
  if (finite(bar.published)) {
    const at = py(bar.published);
    group.append(s("path", { d: `M${x} ${at - 5}L${x + 5} ${at}L${x} ${at + 5}L${x - 5} ${at}Z`, fill: "none", stroke: inks.text }));
  }
  if (bar.text) group.append(text(x, Math.min(y, finite(bar.high) ? py(bar.high) : y) - 6, bar.text, { "text-anchor": "middle", fill: inks.text }));
  return group;
}

function barLegend(rows: string[][], bars: Bar[], left: number, theme: Theme, inks: Inks): SVGElement[] {
  return rows.flatMap((row, i) => {
    let x = left;
    return row.flatMap((label) => {
      const at = x;
      x += 48 + 7 * [...label].length;
      const colour = lineColour(bars.find((bar) => bar.label === label)!.style, theme);
      return [s("rect", { x: at, y: 30 + 18 * i, width: 14, height: 10, fill: colour }), text(at + 20, 40 + 18 * i, label, { fill: inks.text })];
    });
  });
}

function mapSvg(panel: MapPanel): SVGElement {
  const colours = coloursOf(panel);
  const widest = Math.max(...panel.rows.map((row) => [...String(row)].length));
  const [left, top] = [44 + 7 * widest, 62];
  const side = Math.max(5, Math.min(30, (WIDTH - left - 90) / panel.columns.length));
  const down = Math.max(5, Math.min(side, 640 / panel.rows.length));
  const [right, bottom] = [left + side * panel.columns.length, top + down * panel.rows.length];
  const words = Math.max(9 * [...panel.title].length, 7 * [...panel.name].length);
  const [width, height] = [Math.max(right + 90, 24 + words), bottom + 46];
  const parts: SVGElement[] = [text(12, 24, panel.title, { "font-size": 14, "font-weight": 600 }), text(12, 44, panel.name, { fill: PAPER.soft })];
  panel.rows.forEach((_, i) =>
    panel.columns.forEach((__, j) => {
      const [x, y] = [left + side * j, top + down * i];
      const fill = colours.colour(panel.colour[i][j], "light") ?? "#d8d8d8";
      parts.push(s("rect", { x, y, width: side, height: down, fill }));
      if (isOpen(panel, i, j)) parts.push(s("circle", { cx: x + side / 2, cy: y + down / 2, r: Math.min(2, down / 6), fill: "#333333" }));
    }),
  );
  const soft = { fill: PAPER.soft, "font-size": 10 };
  const middle = { ...soft, "font-size": 12, "text-anchor": "middle" };
  for (const i of named(panel.rows.length, down, 12)) parts.push(text(left - 6, top + down * (i + 0.5) + 4, String(panel.rows[i]), { ...soft, "text-anchor": "end" }));
  for (const j of named(panel.columns.length, side, 18)) parts.push(text(left + side * (j + 0.5), bottom + 14, String(panel.columns[j]), { ...soft, "text-anchor": "middle" }));
  parts.push(text((left + right) / 2, bottom + 34, panel.across, middle));
  parts.push(text(14, (top + bottom) / 2, panel.down, { ...middle, transform: `rotate(-90 14 ${(top + bottom) / 2})` }));
  for (let k = 0; k < 60; k++) {
    const y = top + ((bottom - top) * k) / 60;
    parts.push(s("rect", { x: right + 20, y, width: 12, height: (bottom - top) / 60 + 0.5, fill: colours.colour(colours.value(1 - (k + 0.5) / 60), "light") }));
  }
  for (const place of [0, 0.5, 1]) parts.push(text(right + 36, bottom - place * (bottom - top) + 4, short(colours.value(place)), soft));
  return page(width, height, PAPER.ground, ...parts);
}

function round(value: number): number {
  return Math.round(100 * value) / 100;
}
