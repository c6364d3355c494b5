// From numbers to places on an axis, and to colours of a map.

import { finite, type MapPanel } from "../data/panels";
import type { Scale } from "../data/types";
import type { Inks } from "./inks";
import type { Hues } from "./palette";

/** Round places on an axis from `low` to `high`, about as many as wanted. */
export function ticks(low: number, high: number, wanted = 6): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= raw * 0.999) ?? 10 * power;
  const places = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++)
    places.push(Number((i * step).toPrecision(12)));
  return places;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** Whole numbers from `low` to `high`, at least `apart` from each other. */
export function wholeTicks(low: number, high: number, apart: number): number[] {
  const step = STEPS.find((one) => one >= apart) ?? Math.ceil(apart / 5000) * 5000;
  const places = [];
  for (let x = Math.ceil(low / step) * step; x <= high; x += step) places.push(x);
  return places;
}

/** The ends of an axis that holds all of the values. */
export function reach(
  values: Iterable<number | null | undefined>,
  zero = false,
  none?: number | null,
): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!finite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (finite(none)) [low, high] = [Math.min(low, none), Math.max(high, none)];
  if (low > high) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return zero && low >= 0 ? [0, high + room] : [low - room, high + room];
}

/** Where a value falls on an axis of numbered bins, as a fraction of them. */
export function binOf(edges: number[], value: number): number {
  let i = 0;
  while (i < edges.length - 2 && edges[i + 1] <= value) i++;
  return i + (value - edges[i]) / (edges[i + 1] - edges[i]);
}

/** Which of so many rows or columns have their number written, so that none touches the next. */
export function named(count: number, pitch: number, room: number): number[] {
  const step = [1, 2, 5, 10, 20, 50].find((one) => one * pitch >= room) ?? 100;
  if (step === 1) return Array.from({ length: count }, (_, i) => i);
  const places = [0];
  for (let i = step; i <= count; i += step) places.push(i - 1);
  return places;
}

/** How the values of a map become colours: places run from 0 to 1. */
export interface Colours {
  hues: Hues;
  low: number;
  high: number;
  place: (value: number) => number;
  value: (place: number) => number;
}

const WIDEST = 8; // standard deviations at which the colour of an effect ends
const EVEN = 0.5; // and how far from 0 it is even
const same = (value: number) => value;

/** Where nothing has changed, for scales that have such a place. */
export const NOTHING: Partial<Record<Scale, number>> = { ratio: 1, lambda: 1, difference: 0, change: 0 };

/** How far the values of a map go: from no change, in octaves for ratios; of a share, the largest. */
export function reachOf(panel: MapPanel): number {
  const values = panel.colour.flat().filter(finite);
  const away: Record<Scale, (value: number) => number> = {
    share: same,
    ratio: (value) => Math.abs(Math.log2(value)),
    lambda: (value) => Math.abs(value - 1),
    difference: Math.abs,
    change: Math.abs,
  };
  const all = values.map(away[panel.scale]).filter(Number.isFinite);
  return all.reduce((most, value) => Math.max(most, value), 0);
}

export function coloursOf(panel: MapPanel): Colours {
  const far = panel.reach ?? reachOf(panel);
  if (panel.scale === "share") return scaled("sequential", 0, Math.min(1, Math.max(1e-6, far)), same, same);
  if (panel.scale === "change")
    return scaled(
      "diverging",
      -WIDEST,
      WIDEST,
      (v) => Math.asinh(v / EVEN),
      (v) => EVEN * Math.sinh(v),
    );
  if (panel.scale === "ratio") {
    const most = Math.max(0.1, far);
    return scaled("diverging", 2 ** -most, 2 ** most, Math.log2, (v) => 2 ** v);
  }
  const centre = NOTHING[panel.scale]!;
  const most = Math.max(0.01, far);
  return scaled("diverging", centre - most, centre + most, same, same);
}

type Map = (value: number) => number;

function scaled(hues: Hues, low: number, high: number, there: Map, back: Map): Colours {
  const [from, to] = [there(low), there(high)];
  const place = (value: number) => (there(value) - from) / (to - from);
  return { hues, low, high, place, value: (at) => back(from + at * (to - from)) };
}

/** The colour of a value; of none, the colour of what is missing. */
export function cellColour(colours: Colours, value: number | null, inks: Inks): string {
  return finite(value) ? inks.cell(colours.place(value), colours.hues) : inks.missing;
}

export const WEIGHT_SCALES = ["logarithmic", "square root", "linear"] as const;
export type WeightScale = (typeof WEIGHT_SCALES)[number];
const FLOOR = 1e-4; // the weight at which logarithmic colours begin: most weights are small, and few are large

/** The colour's place, from 0 to 1, of an attention weight; the same for every text, so that pictures compare. */
export function weightPlace(weight: number, scale: WeightScale): number {
  if (scale === "linear") return weight;
  if (scale === "square root") return Math.sqrt(weight);
  return Math.max(0, 1 - Math.log10(Math.max(weight, FLOOR)) / Math.log10(FLOOR));
}

export function weightValue(place: number, scale: WeightScale): number {
  if (scale === "linear") return place;
  return scale === "square root" ? place * place : FLOOR ** (1 - place);
}

/** Whether the interval of a cell reaches no change. */
export function isOpen(panel: MapPanel, row: number, column: number): boolean {
  const none = NOTHING[panel.scale];
  const [low, high] = [panel.low[row][column], panel.high[row][column]];
  return none !== undefined && finite(low) && finite(high) && low <= none && high >= none;
}
