// A panel of lines as marks: the same on the screen and in a file, which has title and legend besides.

import { TWINS } from "../data/gap";
import { finite, type Line, type LinePanel, type View } from "../data/panels";
import { visible } from "../ui/text";
import { bottomRoom, isNear, leftRoom, xAxis, yAxis } from "./axes";
import { bandPath, condensed, inRange, linePath, stepPath, type Place } from "./curves";
import type { Inks } from "./inks";
import { legend, title } from "./legend";
import { circle, clipped, horizontal, path, rect, vertical, words, type Box, type Mark } from "./marks";
import { dashes } from "./palette";
import { binOf, reach, ticks } from "./scales";

const MANY = 700; // points of a line, beyond which its dashes cost more than they tell
const FEW = 40; // points of a line, up to which each is marked

/** Where the data stand in a picture. */
export interface Frame {
  box: Box;
  x: [number, number];
  y: [number, number];
  px: Place;
  py: Place;
}

export function shownLines(panel: LinePanel, view: View): Line[] {
  return panel.series.filter((line) => !view.off.has(line.label));
}

/** The whole x axis, with a little room at its ends. */
export function wholeRange(panel: LinePanel): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const { x } of panel.series) for (const at of x) [low, high] = [Math.min(low, at), Math.max(high, at)];
  if (low > high) return [0, 1];
  if (panel.steps) return [low, high + 1];
  const room = panel.tokens ? 0.5 : Math.max(0.3, 0.01 * (high - low));
  return [low - room, high + room];
}

export function lineFrame(panel: LinePanel, view: View, width: number, height: number, top = 14): Frame {
  const x = view.range ?? wholeRange(panel);
  const y = heights(panel, view, x);
  const left = leftRoom(ticks(...y));
  const right = width - 12;
  const bottom = height - bottomRoom(isNear(panel, x, right - left));
  return {
    box: { left, right, top, bottom },
    x,
    y,
    px: (value) => left + ((value - x[0]) / (x[1] - x[0])) * (right - left),
    py: (value) => bottom - ((value - y[0]) / (y[1] - y[0])) * (bottom - top),
  };
}

/** The ends of the y axis. Untrained twins may lie far away: they move an end by twice the height at most. */
function heights(panel: LinePanel, view: View, x: [number, number]): [number, number] {
  const lines = shownLines(panel, view);
  const own = lines.filter((line) => line.condition !== TWINS);
  const all = reach(valuesIn(panel, lines, view, x), panel.zero, panel.none);
  if (!own.length || own.length === lines.length) return all;
  const [low, high] = reach(valuesIn(panel, own, view, x), panel.zero, panel.none);
  const room = 2 * (high - low);
  return [Math.max(all[0], low - room), Math.min(all[1], high + room)];
}

function* valuesIn(
  panel: LinePanel,
  lines: Line[],
  view: View,
  [low, high]: [number, number],
): Generator<number | null> {
  for (const line of lines) {
    const lower = lowerBounds(panel, line);
    for (let i = 0; i < line.x.length; i++) {
      if (line.x[i] < low || line.x[i] > high) continue;
      yield line.y[i];
      if (view.band && lower && line.high) yield* [lower[i], line.high[i]];
    }
  }
}

/** Where a band ends below: at 0 where the quantity cannot be negative, whatever the interval computes to. */
function lowerBounds(panel: LinePanel, line: Line): (number | null)[] | undefined {
  return panel.zero ? line.low?.map((value) => (finite(value) ? Math.max(0, value) : value)) : line.low;
}

/** What is drawn in a frame. */
export function lineMarks(panel: LinePanel, view: View, frame: Frame, inks: Inks): Mark[] {
  const { box, px, py } = frame;
  const places = ticks(...frame.y, (box.bottom - box.top) / 42);
  const inside = [
    ...regionMarks(panel, view, frame, inks),
    ...straightLines(panel, frame, inks),
    ...shownLines(panel, view).flatMap((line) => bandMarks(panel, line, view, frame, inks)),
    ...shownLines(panel, view).flatMap((line) => curveMarks(panel, line, frame, inks)),
    ...unseenTwins(panel, view, frame, inks),
  ];
  const axes = [...yAxis(places, py, box, panel.y, inks), ...xAxis(panel, frame.x, px, box, inks)];
  return [...axes, clipped(box, inside, { "data-mark": "plot" })];
}

/** Where fillers of the lines that are on stand: one region where several stand at the same place. */
export function regionsOf(panel: LinePanel, off: Set<string>): { start: number; stop: number; label: string }[] {
  const places = new Map<string, { start: number; stop: number; label: string }>();
  for (const { start, stop, label } of panel.regions ?? []) {
    if (off.has(label)) continue;
    const key = `${start} ${stop}`;
    places.set(key, { start, stop, label: places.has(key) ? "filler" : label });
  }
  return [...places.values()];
}

function regionMarks(panel: LinePanel, view: View, { box, px }: Frame, inks: Inks): Mark[] {
  return regionsOf(panel, view.off).flatMap(({ start, stop, label }, level) => {
    const [left, right] = [Math.max(box.left, px(start - 0.5)), Math.min(box.right, px(stop - 0.5))];
    if (right - left < 1) return [];
    const edge = { stroke: inks.soft, "stroke-dasharray": "3 3" };
    return [
      rect(left, box.top, right - left, box.bottom - box.top, {
        fill: inks.shade,
        "fill-opacity": 0.16,
        "data-mark": "region",
      }),
      vertical(left, box, edge),
      vertical(right, box, edge),
      words(left + 4, box.top + 12 + 13 * level, label, { fill: inks.soft, "font-size": 11 }),
    ];
  });
}

/** Where filler was taken out, where an activation counts as near zero, and where nothing has changed. */
function straightLines(panel: LinePanel, { box, px, py }: Frame, inks: Inks): Mark[] {
  const dashed = { stroke: inks.soft, "stroke-dasharray": "4 3" };
  const { edges, eps } = panel;
  const thresholds = edges && eps ? [-eps, eps].map((value) => binOf(edges, value)) : [];
  return [
    ...(panel.cuts ?? []).map((x) => vertical(px(x), box, { ...dashed, "data-mark": "cut" })),
    ...thresholds.map((x) => vertical(px(x), box, { ...dashed, "data-mark": "threshold" })),
    ...(finite(panel.none) ? [horizontal(py(panel.none), box, { stroke: inks.soft, "data-mark": "none" })] : []),
  ];
}

/** Says so where untrained twins lie outside the frame. */
function unseenTwins(panel: LinePanel, view: View, { box, x, y }: Frame, inks: Inks): Mark[] {
  const twins = shownLines(panel, view).filter((line) => line.condition === TWINS);
  const values = twins
    .flatMap((line) => line.y.filter((_, i) => line.x[i] >= x[0] && line.x[i] <= x[1]))
    .filter(finite);
  const text = { fill: inks.soft, "font-size": 11, "text-anchor": "end", "data-mark": "unseen" };
  return [
    ...(values.some((one) => one < y[0])
      ? [words(box.right - 6, box.bottom - 6, "untrained twins also below", text)]
      : []),
    ...(values.some((one) => one > y[1])
      ? [words(box.right - 6, box.top + 12, "untrained twins also above", text)]
      : []),
  ];
}

function fitted(line: Line, { box, x }: Frame): Line {
  return condensed(inRange(line, x), box.right - box.left);
}

function bandMarks(panel: LinePanel, line: Line, view: View, frame: Frame, inks: Inks): Mark[] {
  const whole = { ...line, low: lowerBounds(panel, line) };
  const d = view.band ? bandPath(fitted(whole, frame), frame.px, frame.py) : "";
  return d
    ? [path(d, { fill: inks.line(line.style), "fill-opacity": line.thin ? 0.08 : 0.18, "data-mark": "band" })]
    : [];
}

function curveMarks(panel: LinePanel, line: Line, frame: Frame, inks: Inks): Mark[] {
  const { px, py } = frame;
  const shown = fitted(line, frame);
  const stroke = inks.line(line.style);
  const dash = line.x.length > MANY ? undefined : dashes(line.dash);
  const d = panel.steps ? stepPath(shown, px, py) : linePath(shown, px, py);
  const curve = path(d, {
    stroke,
    "stroke-width": line.thin ? 1 : 1.7,
    "stroke-dasharray": dash,
    "data-series": visible(line.label),
  });
  const few = line.x.length <= FEW && !panel.tokens && !panel.steps;
  const dots = few ? shown.x.flatMap((x, i) => dot(px(x), shown.y[i], py, stroke, inks)) : [];
  return [curve, ...dots];
}

function dot(x: number, y: number | null, py: Place, stroke: string, inks: Inks): Mark[] {
  return finite(y) ? [circle(x, py(y), 2.2, { fill: inks.ground, stroke })] : [];
}

/** The panel as it stands alone, with title and legend. */
export function linePicture(panel: LinePanel, view: View, width: number, height: number, inks: Inks): Mark[] {
  const left = lineFrame(panel, view, width, height).box.left;
  const names = legend(shownLines(panel, view), left, width - 12, inks);
  const frame = lineFrame(panel, view, width, height, names.top);
  return [title(left, panel.title, inks), ...names.marks, ...lineMarks(panel, view, frame, inks)];
}
