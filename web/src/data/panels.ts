// What can be drawn: panels as the server sends them, and what the page adds to those that it makes itself.

import type { WeightScale } from "../charts/scales";
import type * as sent from "./types";

export type { Bar, BarGroup, BarPanel, MapPanel } from "./types";

export interface Line extends sent.Line {
  thin?: boolean; // one problem beside the mean
  places?: (number | null)[]; // positions in its own prompt, where it is drawn elsewhere
}

export interface LinePanel extends sent.LinePanel {
  series: Line[];
  cuts?: number[]; // where something was taken out
}

/** Weights of one head [query, key], row by row. `filler`: where it stands, from and up to. */
export interface MatrixPanel {
  kind: "matrix";
  title: string;
  name: string;
  condition: string;
  tokens: string[];
  filler: [number, number] | null;
  weights: Float32Array;
  scale: WeightScale;
}

export type Panel = LinePanel | sent.BarPanel | sent.MapPanel | MatrixPanel;

/** How a panel is looked at: lines that are off, whether bands are drawn, and the part of the x axis; of a matrix
 * also the part of its rows. */
export interface View {
  off: Set<string>;
  band: boolean;
  range: [number, number] | null;
  rows?: [number, number] | null;
}

export function finite(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** What stands at a place on the x axis, in words. */
export function placeName(panel: LinePanel, x: number): string {
  if (panel.edges) return `${short(panel.edges[x])} to ${short(panel.edges[x + 1])}`;
  return `${panel.x} ${x}`;
}

/** A number to three digits, as an axis shows it. */
export function short(value: number): string {
  const size = Math.abs(value);
  const plain = Number(value.toPrecision(3));
  const text = size > 0 && (size < 1e-3 || size >= 1e6) ? plain.toExponential().replace("e+", "e") : String(plain);
  return text.replace(/^-/, "\u2212");
}
