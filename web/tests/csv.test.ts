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

test("a matrix is saved as far as it is in view, without what comes later", () => {
  const weights = new Float32Array([1, 0, 0.25, 0.75]);
  const words = { title: "", name: "", condition: "none", filler: null, scale: "linear" as const };
  const panel = { kind: "matrix" as const, tokens: ["a", 'b"'], weights, ...words };
  const all = { off: new Set<string>(), band: false, range: null };
  assert.deepEqual(panelCsv(panel, all).trim().split("\r\n"), [
    "query,query token,key,key token,weight",
    "0,a,0,a,1",
    '1,"b""",0,a,0.25',
    '1,"b""",1,"b""",0.75',
  ]);
  assert.equal(
    panelCsv(panel, { ...all, range: [1, 2], rows: [0, 2] })
      .trim()
      .split("\r\n").length,
    2,
  );
});

test("no cell is a formula for a spreadsheet, and numbers stay numbers", () => {
  assert.equal(
    csv(["=a"], [["=1+1"], ["-2+3"], ["@x"], ["-7"], ["+0.5%"], ["a=b"]]),
    "'=a\r\n'=1+1\r\n'-2+3\r\n'@x\r\n-7\r\n+0.5%\r\na=b\r\n",
  );
});
