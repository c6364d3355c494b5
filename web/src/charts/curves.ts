// The outlines of lines, steps and bands, as SVG paths.

import { finite, type Line } from "../data/panels";
import { round } from "./marks";

export type Place = (value: number) => number; // to pixels
type Points = Pick<Line, "x" | "y" | "low" | "high">;

/** The path through all points that are numbers; it is broken where one is missing. */
export function linePath(line: Points, px: Place, py: Place): string {
  let pen = "M";
  let d = "";
  line.y.forEach((y, i) => {
    if (finite(y)) d += `${pen}${round(px(line.x[i]))} ${round(py(y))}`;
    pen = finite(y) ? "L" : "M";
  });
  return d;
}

/** A step for each bin. */
export function stepPath(line: Points, px: Place, py: Place): string {
  return line.x
    .map((x, i) => `${i ? "L" : "M"}${round(px(x))} ${round(py(line.y[i] ?? 0))}H${round(px(x + 1))}`)
    .join("");
}

/** The areas between both bounds, one for each stretch without a gap. */
export function bandPath({ x, low, high }: Points, px: Place, py: Place): string {
  if (!low || !high) return "";
  const point = (i: number, bound: (number | null)[]) => `${round(px(x[i]))} ${round(py(bound[i]!))}`;
  return stretches(x.length, (i) => finite(low[i]) && finite(high[i]))
    .filter((some) => some.length > 1)
    .map((some) => `M${[...some.map((i) => point(i, high)), ...some.reverse().map((i) => point(i, low))].join("L")}Z`)
    .join("");
}

function stretches(length: number, holds: (i: number) => boolean): number[][] {
  const all: number[][] = [[]];
  for (let i = 0; i < length; i++) {
    if (holds(i)) all.at(-1)!.push(i);
    else if (all.at(-1)!.length) all.push([]);
  }
  return all;
}

/** The points between two places, and the one beyond each end to which the line goes on. */
export function inRange<T extends Points>(line: T, [low, high]: [number, number]): T {
  const start = Math.max(0, line.x.findIndex((x) => x >= low) - 1);
  const after = line.x.findIndex((x) => x > high);
  const cut = <V>(values: V[] | undefined) => values?.slice(start, after < 0 ? undefined : after + 1);
  return { ...line, x: cut(line.x)!, y: cut(line.y)!, low: cut(line.low), high: cut(line.high) };
}

/** Where many points fall on one pixel, the lowest and the highest of them. */
export function condensed<T extends Points>(line: T, pixels: number): T {
  const each = Math.floor(line.x.length / pixels);
  if (each < 4) return line;
  const starts = Array.from({ length: Math.ceil(line.x.length / each) }, (_, i) => i * each);
  const twice = (values: (number | null)[] | undefined, first: "min" | "max", second: "min" | "max") =>
    values && starts.flatMap((start) => [extreme(values, start, each, first), extreme(values, start, each, second)]);
  return {
    ...line,
    x: starts.flatMap((start) => [line.x[start], line.x[start]]),
    y: twice(line.y, "min", "max")!,
    low: twice(line.low, "min", "min"),
    high: twice(line.high, "max", "max"),
  };
}

function extreme(values: (number | null)[], start: number, count: number, which: "min" | "max"): number | null {
  const some = values.slice(start, start + count).filter(finite);
  return some.length ? Math[which](...some) : null;
}
