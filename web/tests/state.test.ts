// The address says the whole view, and anything odd in one is as if it were not given.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, print, type State } from "../src/data/state";

const NOTHING = parse("");

test("a state survives the address", () => {
  const state: State = {
    ...NOTHING,
    tab: "attention",
    runs: ["0", "2"],
    layer: 3,
    head: 12,
    first: false,
    x: [-0.5, 17.3],
    off: ["none", "a,b", "100% <é>"],
    text: "a & b = c #1",
    start: 50,
  };
  assert.deepEqual(parse(`#${print(state)}`), state);
  assert.deepEqual(parse(print(state)), state);
});

test("what is not chosen is not written", () => {
  assert.equal(print(NOTHING), "");
  assert.equal(print({ ...NOTHING, start: 0, off: [], first: null }), "");
  assert.equal(print({ ...NOTHING, first: false }), "first=0");
});

test("addresses of earlier versions are read", () => {
  const state = parse("#tab=attention&layer=2&head=3&view=whole&x=1.5~20.0&off=mless%2Crandom&first=1");
  assert.deepEqual([state.layer, state.head, state.view, state.x], [2, 3, "whole", [1.5, 20]]);
  assert.deepEqual([state.off, state.first], [["mless", "random"], true]);
});

test("odd values are as if they were not given", () => {
  const state = parse("layer=x&head=&x=NaN~1&start=-4&off=%25&visit=7&__proto__=1");
  assert.deepEqual([state.layer, state.head, state.x, state.start], [null, null, null, 0]);
  assert.deepEqual(state.off, ["%"]);
  assert.deepEqual(parse("x=~").x, null);
  assert.deepEqual(Object.keys(state), Object.keys(NOTHING));
});

test("a condition that is off twice is written once", () => {
  assert.equal(print({ ...NOTHING, off: ["a", "a"] }), "off=a");
});
