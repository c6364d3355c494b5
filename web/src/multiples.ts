// All heads of a layer, small, side by side; a click goes to one.

import type { Packed } from "./api";
import { h, replace } from "./dom";
import type { Pane } from "./pane";
import { reach, type Region } from "./panels";
import { DASHES, faded, ink, lineColour, onTheme } from "./theme";

const [WIDTH, HEIGHT] = [132, 64];
const AT_ONCE = 4; // drawn in one frame

export class Multiples {
  readonly element = h("section", { class: "card multiples" });
  private readonly grid = h("div", { class: "grid" });
  private redraw: () => void = () => {};
  private frame = 0;
  private shown: { found: Packed; key: string } | null = null;

  readonly destroy = onTheme(() => this.redraw());

  constructor(private readonly pane: Pane) {}

  async update(mine: () => boolean, view: string, regions: Region[]): Promise<void> {
    const { pane } = this;
    const found = await pane.api.packed("layer", { model: pane.model.name, layer: pane.layer, queries: pane.queries, view });
    if (!mine()) return;
    const key = ["off", "first"].map((name) => pane.address.get(name)).join();
    if (this.shown?.found !== found || this.shown.key !== key) {
      this.redraw = () => this.draw(found, view === "whole" ? regions : []);
      this.redraw();
      this.shown = { found, key };
    }
    this.grid.querySelectorAll("button").forEach((cell, i) => cell.setAttribute("aria-pressed", String(i + 1 === pane.head)));
  }

  private draw(found: Packed, regions: Region[]): void {
    const { pane } = this;
    const off = pane.address.list("off");
    const names = [...found.arrays.keys()].filter((name) => !off.has(name));
    const cells = Array.from({ length: pane.model.heads }, (_, head) => {
      const canvas = h("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT, "aria-hidden": "true" });
      const go = () => pane.address.set({ head: head + 1 });
      return h("button", { type: "button", "data-head": head + 1, click: go }, h("span", {}, `Head ${head + 1}`), canvas);
    });
    replace(this.grid, ...cells);
    const title = h("h3", {}, `All heads of layer ${pane.layer}`);
    const note = h("p", { class: "hint" }, "Each on its own scale; lines and view as above.");
    replace(this.element, h("header", { class: "card-head" }, title), this.grid, note);
    const canvases = [...this.grid.querySelectorAll("canvas")];
    this.inTurn(canvases.map((canvas, head) => () => this.curves(canvas, found, names, head, regions)));
  }

  /** A few at a time, so that whoever goes on does not wait for all of them. */
  private inTurn(drawings: (() => void)[]): void {
    cancelAnimationFrame(this.frame);
    drawings.splice(0, AT_ONCE).forEach((draw) => draw());
    if (drawings.length) this.frame = requestAnimationFrame(() => this.inTurn(drawings));
  }

  private curves(canvas: HTMLCanvasElement, found: Packed, names: string[], head: number, regions: Region[]): void {
    const context = canvas.getContext("2d")!;
    context.scale(2, 2);
    const stops = found.header.reach as Record<string, number>;
    const first = this.pane.address.get("first", this.pane.overview.skip_first ? "0" : "1") === "1" ? 0 : 1;
    const lines = names.map((name) => {
      const { shape, values } = found.arrays.get(name)!;
      return { name, values: values.subarray(head * shape[1] + first, head * shape[1] + stops[name]) };
    });
    const longest = Math.max(1, ...lines.map((line) => line.values.length));
    const [low, high] = reach(lines.flatMap((line) => Array.from(line.values)));
    const x = (i: number) => 2 + (i / longest) * (WIDTH - 4);
    const y = (value: number) => HEIGHT - 3 - ((value - low) / (high - low)) * (HEIGHT - 6);
    context.fillStyle = faded(ink("shade"), 0.18);
    const shaded = new Map(regions.filter((one) => names.includes(one.condition)).map((one) => [`${one.start} ${one.stop}`, one]));
    for (const { start, stop } of shaded.values()) context.fillRect(x(start - first), 0, x(stop) - x(start), HEIGHT);
    for (const line of lines) {
      const style = this.pane.style(line.name);
      context.strokeStyle = lineColour(style);
      context.lineWidth = 1.1;
      const many = line.values.length > 2 * WIDTH; // dashes would cost more than they tell
      context.setLineDash(many ? [] : DASHES[style % DASHES.length].map((part) => part / 2));
      context.beginPath();
      let down = false;
      for (const [i, value] of outline(line.values, WIDTH)) {
        if (!Number.isFinite(value)) down = false;
        else if (down) context.lineTo(x(i), y(value));
        else {
          context.moveTo(x(i), y(value));
          down = true;
        }
      }
      context.stroke();
    }
  }
}

/** As many points as there are pixels: where several fall on one, the lowest and the highest of them. */
function* outline(values: Float32Array, pixels: number): Generator<[number, number]> {
  const each = Math.floor(values.length / pixels);
  if (each < 2) return yield* values.entries();
  for (let start = 0; start < values.length; start += each) {
    const some = values.subarray(start, start + each);
    yield [start, Math.min(...some)];
    yield [start, Math.max(...some)];
  }
}
