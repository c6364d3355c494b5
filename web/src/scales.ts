// From a number to a colour, for maps.

import { finite, type MapPanel, type Numbers, type Scale } from "./panels";
import { mapColour, type Theme } from "./theme";

export interface Colours {
  colour: (value: number | null | undefined, theme?: Theme) => string | null;
  low: number;
  high: number;
  /** From 0 to 1 back to a value. */
  value: (place: number) => number;
  kind: "diverging" | "sequential";
}

const WIDEST = 8; // standard deviations at which the colour of an effect ends
const EVEN = 0.5; // and how far from 0 it is even
const asinh = (x: number) => Math.asinh(x / EVEN);

/** Where nothing has changed, for scales that have such a place. */
export const NOTHING: Partial<Record<Scale, number>> = { ratio: 1, lambda: 1, difference: 0, change: 0 };

export function coloursOf(panel: MapPanel): Colours {
  const values = panel.colour.flatMap((row: Numbers) => Array.from(row)).filter(finite);
  if (panel.scale === "share") {
    const high = Math.max(1e-6, ...values.map((value) => value));
    return scaled("sequential", 0, Math.min(1, high), (v) => v, (v) => v);
  }
  if (panel.scale === "change") return scaled("diverging", -WIDEST, WIDEST, asinh, (v) => EVEN * Math.sinh(v));
  if (panel.scale === "ratio") {
    const own = values.map((value) => Math.abs(Math.log2(value))).filter(Number.isFinite);
    const most = Math.max(0.1, panel.reach ?? Math.max(0, ...own));
    return scaled("diverging", 2 ** -most, 2 ** most, Math.log2, (v) => 2 ** v);
  }
  const centre = NOTHING[panel.scale]!;
  const most = Math.max(0.01, ...values.map((value) => Math.abs(value - centre)));
  return scaled("diverging", centre - most, centre + most, (v) => v, (v) => v);
}

function scaled(
  kind: "diverging" | "sequential",
  low: number,
  high: number,
  there: (value: number) => number,
  back: (value: number) => number,
): Colours {
  const [from, to] = [there(low), there(high)];
  return {
    kind,
    low,
    high,
    colour: (value, theme) => (finite(value) ? mapColour((there(value) - from) / (to - from), kind, theme) : null),
    value: (place) => back(from + place * (to - from)),
  };
}

/** Whether the interval of a cell reaches no change. */
export function isOpen(panel: MapPanel, row: number, column: number): boolean {
  const none = NOTHING[panel.scale];
  const [low, high] = [panel.low[row][column], panel.high[row][column]];
  return none !== undefined && finite(low) && finite(high) && low <= none && high >= none;
}

/** Which of so many rows or columns have their number written, so that none touches the next. */
export function named(count: number, pitch: number, room: number): number[] {
  const step = [1, 2, 5, 10, 20, 50].find((one) => one * pitch >= room) ?? 100;
  const found = [0];
  for (let i = step; i <= count; i += step) if (i - 1 > 0) found.push(i - 1);
  return step === 1 ? Array.from({ length: count }, (_, i) => i) : found;
}
