// Screen and file are painted from the same marks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bandPath, condensed, inRange, linePath } from "../src/charts/curves";
import { paperPicture } from "../src/charts/files";
import { screenInks } from "../src/charts/inks";
import { lineFrame, lineMarks } from "../src/charts/lines";
import type { Mark } from "../src/charts/marks";
import type { LinePanel, View } from "../src/data/panels";

const ALL: View = { off: new Set(), band: true, range: null };
const same = (value: number) => value;
const region = { label: "A", condition: "a", style: 1, dash: 1, start: 1, stop: 3, fixed: true };
const PANEL: LinePanel = {
  kind: "lines",
  title: "Title",
  x: "Bin",
  y: "Share",
  zero: true,
  none: 0.5,
  steps: true,
  edges: [-4, -1, 1, 4],
  eps: 0.5,
  cuts: [1.5],
  regions: [region],
  series: [
    { label: "A", style: 1, dash: 1, x: [0, 1, 2], y: [0.2, 0.6, 0.2], low: [0.1, 0.5, 0.1], high: [0.3, 0.7, 0.3] },
  ],
};

function kinds(marks: Mark[]): string[] {
  return marks
    .flatMap((mark) => [mark.attributes["data-mark"] ?? mark.attributes["data-series"], ...kinds(mark.marks ?? [])])
    .filter((kind) => kind !== undefined) as string[];
}

test("a file has every mark that the screen has", () => {
  const screen = kinds(lineMarks(PANEL, ALL, lineFrame(PANEL, ALL, 600, 300), screenInks("dark")));
  assert.deepEqual(screen, ["plot", "region", "cut", "threshold", "threshold", "none", "band", "A"]);
  assert.deepEqual(kinds(paperPicture(PANEL, ALL).marks), screen);
});

test("a line that is off has no marks", () => {
  const off = { ...ALL, off: new Set(["A"]) };
  assert.deepEqual(kinds(paperPicture(PANEL, off).marks), ["plot", "cut", "threshold", "threshold", "none"]);
  assert.deepEqual(kinds(paperPicture(PANEL, { ...ALL, band: false }).marks).includes("band"), false);
});

test("lines and bands are broken where a number is missing", () => {
  const y = [1, null, 3, 4];
  assert.equal(linePath({ x: [0, 1, 2, 3], y }, same, same), "M0 1M2 3L3 4");
  assert.equal(bandPath({ x: [0, 1, 2, 3], y, low: y, high: y }, same, same), "M2 3L3 4L3 4L2 3Z");
});

test("a part of a line goes on to the next point outside", () => {
  const line = { x: [0, 1, 2, 3, 4, 5], y: [0, 1, 2, 3, 4, 5] };
  assert.deepEqual(inRange(line, [1.5, 3.5]).x, [1, 2, 3, 4]);
  assert.deepEqual(inRange(line, [-9, 9]).x, line.x);
});

test("many points keep their extremes", () => {
  const y = Array.from({ length: 1000 }, (_, i) => (i === 777 ? 9 : i === 333 ? -9 : Math.sin(i)));
  const line = { x: y.map((_, i) => i), y };
  const short = condensed(line, 100);
  assert.equal(short.x.length, 200);
  assert.deepEqual([Math.min(...short.y), Math.max(...short.y)], [-9, 9]);
  assert.equal(condensed(line, 900), line);
});

test("a band does not go below zero where nothing can, and twins do not decide the axis", () => {
  const line = { label: "A", condition: "a", style: 1, dash: 1, x: [0, 1], y: [0.1, 0.2] };
  const own = { ...line, low: [-0.4, 0.1], high: [0.6, 0.3] };
  const panel: LinePanel = { kind: "lines", title: "", x: "", y: "", zero: true, none: null, series: [own] };
  const frame = lineFrame(panel, ALL, 600, 300);
  assert.equal(frame.y[0], 0);
  const marks = lineMarks(panel, ALL, frame, screenInks("light")).flatMap((mark) => mark.marks ?? []);
  const band = marks.find((mark) => mark.attributes["data-mark"] === "band")!.attributes.d as string;
  const lowest = Math.max(...[...band.matchAll(/[ML][\d.]+ ([\d.]+)/g)].map((match) => Number(match[1])));
  assert.equal(lowest.toFixed(1), frame.box.bottom.toFixed(1));
  assert.ok(lineFrame({ ...panel, zero: false }, ALL, 600, 300).y[0] < -0.4);
  const twins = { ...line, condition: "untrained twins", low: [-9, -9], high: [9, 9], y: [-8, -8] };
  const both = { ...panel, zero: false, series: [own, twins] };
  const [low, high] = lineFrame(both, ALL, 600, 300).y;
  assert.ok(low > -4 && high < 4);
  assert.ok(kinds(paperPicture(both, ALL).marks).includes("unseen"));
  const near = { ...both, series: [own, { ...twins, y: [-1, -1] }] };
  assert.ok(lineFrame(near, ALL, 600, 300).y[0] < -1);
  assert.equal(kinds(paperPicture(near, ALL).marks).includes("unseen"), false);
});
