// What is on the screen as a table.

import assert from "node:assert/strict";
import { test } from "node:test";
import { csv, panelCsv } from "../src/data/csv";
import type { LinePanel, View } from "../src/data/panels";

const ALL: View = { off: new Set(), band: true, range: null };
const PANEL: LinePanel = {
  kind: "lines",
  title: "",
  x: "Layer",
  y: "",
  zero: false,
  none: null,
  series: [
    {
      label: "A, b",
      condition: "a",
      style: 0,
      dash: 0,
      x: [1, 2, 3],
      y: [0.5, null, 1.5],
      low: [0, null, 1],
      high: [1, null, 2],
      n: [4, 0, 4],
    },
    { label: "B", style: 1, dash: 1, x: [1, 2], y: [Number.NaN, 2] },
  ],
};

function rows(text: string): string[] {
  return text.trimEnd().split("\r\n");
}

test("fields are quoted where they must be, and missing numbers are empty", () => {
  assert.equal(
    csv(
      ["a", "b"],
      [
        ['say "x"', null],
        ["1\n2", Number.NaN],
        ["plain", 0.1],
      ],
    ),
    'a,b\r\n"say ""x""",\r\n"1\n2",\r\nplain,0.1\r\n',
  );
});

test("lines have a row for each number", () => {
  assert.deepEqual(rows(panelCsv(PANEL, ALL)), [
    "series,condition,layer,mean,low,high,n",
    '"A, b",a,1,0.5,0,1,4',
    '"A, b",a,3,1.5,1,2,4',
    "B,,2,2,,,",
  ]);
});

test("only lines that are on, and of them what is in view", () => {
  assert.deepEqual(rows(panelCsv(PANEL, { ...ALL, off: new Set(["B"]), range: [2.5, 9] })).slice(1), [
    '"A, b",a,3,1.5,1,2,4',
  ]);
});

test("places are tokens or bins where the axis has these", () => {
  const tokens = rows(panelCsv({ ...PANEL, tokens: ["x", "y", "z"] }, ALL));
  assert.deepEqual(tokens.slice(0, 2), ["series,condition,position,token,mean,low,high,n", '"A, b",a,1,y,0.5,0,1,4']);
  const bins = rows(panelCsv({ ...PANEL, edges: [0, 0.1, 1, 10, 100] }, ALL));
  assert.deepEqual(bins.slice(0, 2), ["series,condition,from,to,mean,low,high,n", '"A, b",a,0.1,1,0.5,0,1,4']);
});
