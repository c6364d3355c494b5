// Whole prompts with and without filler over one axis: those without it leave its place free.

import type { Line, LinePanel } from "./panels";
import type { Region } from "./types";

/** A panel of whole prompts in which lines without filler go on behind the filler, with a gap where it stands, so that
 * one token of the question has one place. Nothing changes where the filler's place differs between problems. */
export function withGap(panel: LinePanel, condition?: string): LinePanel {
  const region = gapOf(panel.regions ?? [], condition);
  if (!region) return panel;
  const filled = new Set(panel.regions!.map((one) => one.condition));
  const series = panel.series.map((line) =>
    filled.has(line.condition ?? "") || line.condition === TWINS ? line : apart(line, region),
  );
  return { ...panel, series };
}

export const TWINS = "untrained twins"; // stands where a condition does; theirs is the one with filler

/** The filler that others leave free: that of the condition which is looked at, or the first. */
export function gapOf(regions: Region[], condition?: string): Region | null {
  const region = regions.find((one) => one.condition === condition) ?? regions.at(0);
  return region?.fixed ? region : null;
}

export type Points = Pick<Line, "x" | "y" | "low" | "high" | "n" | "places">;

/** Points from the filler's place on, moved behind it; a point without a number breaks the line. */
export function apart<T extends Points>(line: T, { start, stop }: Pick<Region, "start" | "stop">): T {
  const at = line.x.findIndex((x) => x >= start);
  if (at < 0) return line;
  const cut = <V>(values: V[], middle: V) => [...values.slice(0, at), middle, ...values.slice(at)];
  const x = cut(
    line.x.map((one) => (one >= start ? one + stop - start : one)),
    start,
  );
  const [y, low, high, n] = [line.y, line.low, line.high, line.n].map((some) => some && cut(some, null));
  return { ...line, x, y: y!, low, high, n, places: cut<number | null>(line.x, null) };
}
