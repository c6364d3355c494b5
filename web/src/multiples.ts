// All heads of a layer, small, side by side; a click goes to one.

import type { Packed } from "./api";
import { h, replace } from "./dom";
import type { Pane } from "./pane";
import { reach, type Region } from "./panels";
import { DASHES, faded, ink, lineColour, onTheme } from "./theme";

const [WIDTH, HEIGHT] = [132, 64];

export class Multiples {
  readonly element = h("section", { class: "card multiples" });
  private readonly grid = h("div", { class: "grid" });
  private redraw: () => void = () => {};

  readonly destroy = onTheme(() => this.redraw());

  constructor(private readonly pane: Pane) {}

  async update(mine: () => boolean, regions: Region[]): Promise<void> {
    const { pane } = this;
    const wanted = pane.address.get("view", "aligned");
    const view = pane.fillers.length ? wanted : "aligned";
    const found = await pane.api.packed("layer", { model: pane.model.name, layer: pane.layer, queries: pane.queries, view });
    if (!mine()) return;
    this.redraw = () => this.draw(found, view === "whole" ? regions : []);
    this.redraw();
  }

  private draw(found: Packed, regions: Region[]): void {
    const { pane } = this;
    const off = pane.address.list("off");
    const names = [...found.arrays.keys()].filter((name) => !off.has(name));
    const held = this.grid.contains(document.activeElement);
    const cells = Array.from({ length: pane.model.heads }, (_, head) => {
      const canvas = h("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT, "aria-hidden": "true" });
      this.curves(canvas, found, names, head, regions);
      const chosen = head + 1 === pane.head;
      const go = () => pane.address.set({ head: head + 1 });
      return h("button", { type: "button", "aria-pressed": String(chosen), "data-head": head + 1, click: go }, h("span", {}, `Head ${head + 1}`), canvas);
    });
    replace(this.grid, ...cells);
    const title = h("h3", {}, `All heads of layer ${pane.layer}`);
    const note = h("p", { class: "hint" }, "Each on its own scale; lines and view as above.");
    replace(this.element, h("header", { class: "card-head" }, title), this.grid, note);
    if (held) this.grid.querySelector<HTMLElement>('[aria-pressed="true"]')?.focus({ preventScroll: true });
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
      context.setLineDash(DASHES[style % DASHES.length].map((part) => part / 2));
      context.beginPath();
      let down = false;
      line.values.forEach((value, i) => {
        if (!Number.isFinite(value)) down = false;
        else if (down) context.lineTo(x(i), y(value));
        else {
          context.moveTo(x(i), y(value));
          down = true;
        }
      });
      context.stroke();
    }
  }
}
