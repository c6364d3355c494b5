// What can be drawn. The same forms come from the run's tables in Python and from what the explorer fetches.

export type Numbers = ArrayLike<number | null>;

export interface Line {
  label: string;
  condition?: string;
  style: number; // which colour
  dash: number;
  x: ArrayLike<number>;
  y: Numbers;
  low?: Numbers;
  high?: Numbers;
  n?: Numbers;
  thin?: boolean;
}

export interface Region {
  label: string;
  condition: string;
  style: number;
  start: number;
  stop: number;
  fixed: boolean;
}

export interface LinePanel {
  kind: "lines";
  title: string;
  x: string;
  y: string;
  series: Line[];
  zero?: boolean; // the axis begins at 0
  none?: number | null; // where nothing has changed
  regions?: Region[];
  cuts?: { at: number; label: string }[]; // where something was taken out
  tokens?: string[];
  steps?: boolean;
  edges?: number[]; // of the bins, where these are numbered
  eps?: number;
}

export interface Bar {
  label: string;
  condition: string;
  style: number;
  value: number | null;
  low: number | null;
  high: number | null;
  n: number | null;
  note?: string;
  text?: string;
  published?: number | null;
}

export interface BarPanel {
  kind: "bars";
  title: string;
  y: string;
  groups: { label: string; bars: Bar[] }[];
  none?: number | null;
  mark: "bar" | "point";
}

export type Scale = "ratio" | "lambda" | "difference" | "change" | "share";

export interface MapPanel {
  kind: "map";
  title: string;
  down: string; // what rows are
  across: string;
  rows: (string | number)[];
  columns: (string | number)[];
  scale: Scale;
  name: string; // what the colour shows
  reach?: number; // how far the colours go, in octaves, where several maps share a scale
  colour: Numbers[];
  value: Numbers[];
  low: Numbers[];
  high: Numbers[];
}

export type Panel = LinePanel | BarPanel | MapPanel;

export function finite(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Round places on an axis from `low` to `high`, about as many as wanted. */
export function ticks(low: number, high: number, wanted = 6): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= raw * 0.999) ?? 10 * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** The ends of an axis that holds all of the values. */
export function reach(values: Iterable<number | null | undefined>, zero = false, none?: number | null): [number, number] {
  let low = Infinity;
  let high = -Infinity;
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

export function* shownValues(panel: LinePanel, off: Set<string>, band: boolean): Generator<number | null> {
  for (const line of panel.series) {
    if (off.has(line.label)) continue;
    yield* Array.from(line.y);
    if (band && line.low && line.high) {
      yield* Array.from(line.low);
      yield* Array.from(line.high);
    }
  }
}

/** Where fillers of the lines that are on stand: one region where several stand at the same place. */
export function regionsOf(panel: LinePanel, off: Set<string>): { start: number; stop: number; label: string }[] {
  const found = new Map<string, { start: number; stop: number; label: string }>();
  for (const { start, stop, label } of panel.regions ?? []) {
    if (off.has(label)) continue;
    const key = `${start} ${stop}`;
    found.set(key, { start, stop, label: found.has(key) ? "filler" : label });
  }
  return [...found.values()];
}

/** What stands at a place on the x axis, in words. */
export function placeName(panel: LinePanel, x: number): string {
  if (panel.edges) return `${short(panel.edges[x])} to ${short(panel.edges[x + 1])}`;
  return `${panel.x} ${x}`;
}

export function short(value: number): string {
  const size = Math.abs(value);
  const plain = Number(value.toPrecision(3));
  const text = size > 0 && (size < 1e-3 || size >= 1e6) ? plain.toExponential().replace("e+", "e") : String(plain);
  return text.replace(/^-/, "\u2212");
}

/** A token short enough to stand under an axis. */
export function clipped(text: string): string {
  const letters = [...text];
  return letters.length > 9 ? `${letters.slice(0, 8).join("")}\u2026` : text;
}

/** Where a value falls on an axis of numbered bins, as a fraction of them. */
export function binOf(edges: number[], value: number): number {
  let i = 0;
  while (i < edges.length - 2 && edges[i + 1] <= value) i++;
  return i + (value - edges[i]) / (edges[i + 1] - edges[i]);
}
