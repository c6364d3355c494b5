// Places on axes and colours of maps.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PAPER } from "../src/charts/inks";
import {
  binOf,
  cellColour,
  coloursOf,
  isOpen,
  named,
  reach,
  reachOf,
  ticks,
  WEIGHT_SCALES,
  weightPlace,
  weightValue,
  wholeTicks,
} from "../src/charts/scales";
import type { MapPanel, Scale } from "../src/data/types";

function map(scale: Scale, value: (number | null)[][], more: Partial<MapPanel> = {}): MapPanel {
  const sizes = { rows: value.map((_, i) => i + 1), columns: value[0].map((_, i) => i + 1) };
  const words = { title: "", down: "layer", across: "head", name: "" };
  return { kind: "map", ...words, ...sizes, scale, colour: value, value, low: value, high: value, ...more };
}

test("ticks are round and within their axis", () => {
  assert.deepEqual(ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(ticks(-0.013, 0.021, 4), [-0.01, 0, 0.01, 0.02]);
  assert.deepEqual(ticks(3, 3), [3]);
});

test("whole ticks stand as far apart as is asked", () => {
  assert.deepEqual(wholeTicks(0.5, 30.5, 3.7), [5, 10, 15, 20, 25, 30]);
  assert.deepEqual(wholeTicks(0.7, 4.3, 0.4), [1, 2, 3, 4]);
  assert.deepEqual(wholeTicks(0, 30000, 7000), [0, 10000, 20000, 30000]);
});

test("an axis reaches over all numbers, from zero or to no change where asked", () => {
  assert.deepEqual(reach([null, Number.NaN, undefined]), [0, 1]);
  assert.deepEqual(reach([0, 100], true), [0, 106]);
  assert.deepEqual(reach([2], false, 1), [0.94, 2.06]);
  assert.deepEqual(reach([-1, 1], true), [-1.12, 1.12]);
});

test("a value has its place among numbered bins", () => {
  const edges = [-4, -1, 1, 4];
  assert.equal(binOf(edges, 0), 1.5);
  assert.equal(binOf(edges, 1), 2);
  assert.equal(binOf(edges, 4), 3);
});

test("numbers of rows do not touch", () => {
  assert.deepEqual(named(4, 20, 13), [0, 1, 2, 3]);
  assert.deepEqual(named(12, 4, 13), [0, 4, 9]);
});

test("a ratio and its inverse are equally far from the middle", () => {
  const colours = coloursOf(map("ratio", [[0.5, 1, 2]]));
  assert.deepEqual([0.5, 1, 2].map(colours.place), [0, 0.5, 1]);
  assert.equal(colours.value(0.25), 2 ** -0.5);
  assert.equal(cellColour(colours, 1, PAPER), "rgb(247, 247, 247)");
  assert.equal(cellColour(colours, 0.5, PAPER), "rgb(5, 48, 97)");
  assert.equal(cellColour(colours, null, PAPER), PAPER.missing);
});

test("maps that share a scale have the same colours", () => {
  const colours = coloursOf(map("ratio", [[0.9]], { reach: 3 }));
  assert.deepEqual([colours.low, colours.high], [1 / 8, 8]);
});

test("shares run from zero, differences to both sides", () => {
  const share = coloursOf(map("share", [[0.1, 0.4]]));
  assert.deepEqual([share.hues, share.low, share.high], ["sequential", 0, 0.4]);
  const difference = coloursOf(map("difference", [[-0.2, 0.1]]));
  assert.deepEqual([difference.low, difference.high], [-0.2, 0.2]);
});

test("a cell is open where its interval reaches no change", () => {
  const panel = map("ratio", [[0.9, 0.9]], { low: [[0.8, 0.8]], high: [[0.95, 1.05]] });
  assert.deepEqual([isOpen(panel, 0, 0), isOpen(panel, 0, 1)], [false, true]);
  assert.equal(isOpen({ ...panel, scale: "share" }, 0, 1), false);
});

test("maps of any scale can share their reach", () => {
  const two = [map("share", [[0.1]]), map("share", [[0.4]])];
  const most = Math.max(...two.map(reachOf));
  assert.deepEqual(
    two.map((panel) => coloursOf({ ...panel, reach: most }).high),
    [0.4, 0.4],
  );
  assert.equal(reachOf(map("ratio", [[0.25, 2, null]])), 2);
  assert.equal(reachOf(map("lambda", [[0.7, 1.1]])).toFixed(3), "0.300");
});

test("a weight's colour says its value, on every scale, and small weights are told apart", () => {
  for (const scale of WEIGHT_SCALES) {
    assert.deepEqual([weightPlace(1, scale), weightValue(1, scale)], [1, 1]);
    assert.equal(weightPlace(weightValue(0.3, scale), scale).toFixed(6), "0.300000");
  }
  assert.equal(weightPlace(0, "logarithmic"), 0);
  assert.equal(weightPlace(0.01, "logarithmic"), 0.5);
});
