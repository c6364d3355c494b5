import assert from "node:assert/strict";
import { test } from "node:test";

import { average, chance } from "../src/ui/text";

test("p values have the digits of the terminal", () => {
  const shown = [1, 0.875, 0.5, 0.04567, 0.0012, 0.0009, null].map(chance);
  assert.deepEqual(shown, ["1", "0.875", "0.5", "0.0457", "0.0012", "< 0.001", "\u2013"]);
});

test("means of counts are whole numbers", () => {
  assert.deepEqual([32, 7.25, 1234.5, null].map(average), ["32", "7", "1234", "\u2013"]);
});
