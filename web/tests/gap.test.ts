import assert from "node:assert/strict";
import { test } from "node:test";
import { withGap } from "../src/data/gap";
import type { Line, LinePanel } from "../src/data/panels";

const region = { label: "mless", condition: "mless", style: 1, dash: 1, start: 2, stop: 5, fixed: true };

function panel(lines: Partial<Line>[], fixed = true): LinePanel {
  const series = lines.map((line) => ({ label: line.condition!, style: 0, dash: 0, x: [0, 1, 2, 3], ...line }) as Line);
  const regions = [{ ...region, fixed }];
  return { kind: "lines", title: "", x: "", y: "", zero: true, none: null, series, regions };
}

test("a line without filler goes on behind it, with a gap", () => {
  const y = [4, 3, 2, 1];
  const [none, mless] = withGap(
    panel([
      { condition: "none", y, low: y, n: y },
      { condition: "mless", y },
    ]),
  ).series;
  assert.deepEqual(none.x, [0, 1, 2, 5, 6]);
  assert.deepEqual(none.y, [4, 3, null, 2, 1]);
  assert.deepEqual(none.low, none.y);
  assert.deepEqual(none.n, none.y);
  assert.equal(none.high, undefined);
  assert.deepEqual(none.places, [0, 1, null, 2, 3]);
  assert.deepEqual(mless.x, [0, 1, 2, 3]);
});

test("untrained twins have filler, and a place that differs leaves all as it is", () => {
  const twins = withGap(panel([{ condition: "untrained twins", y: [1, 1, 1, 1] }])).series[0];
  assert.deepEqual(twins.x, [0, 1, 2, 3]);
  const none = withGap(panel([{ condition: "none", y: [1, 1, 1, 1] }], false)).series[0];
  assert.deepEqual(none.x, [0, 1, 2, 3]);
});
