// The weights of one head on the page: hover and arrow keys read a cell, dragging zooms, double-click shows all.

import { short, type MatrixPanel, type View } from "../data/panels";
import { h, replace } from "../ui/dom";
import { number, token, visible } from "../ui/text";
import { onTheme, theme } from "../ui/theme";
import { screenInks } from "./inks";
import { rect } from "./marks";
import { BELOW, matrixFrame, matrixMarks, seenBy, type MatrixFrame } from "./matrix";
import { chart, paint } from "./paint";
import { weightValue } from "./scales";

type Cell = [number, number]; // query and key
const [TOP, FAR] = [18, 6];
const STEPS: Record<string, Cell> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class MatrixChart {
  readonly element: HTMLElement;
  private readonly ground = h("div", { class: "matrix-ground" });
  private readonly over = h("div", { class: "plot-over" });
  private readonly selection = h("div", { class: "selection", hidden: true });
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly scale = h("div", { class: "map-scale" });
  private readonly ends: (() => void)[] = [];
  private frame: MatrixFrame | null = null;
  private cursor: SVGElement | null = null;
  private pointed: Cell | null = null;
  private pressed: [number, number] | null = null; // where, in pixels of the cells
  view: View = { off: new Set(), band: false, range: null, rows: null };

  constructor(readonly panel: MatrixPanel) {
    this.over.append(this.selection);
    const label = `${panel.title}. ${panel.name}. Arrow keys read cells, plus and minus zoom, 0 shows all.`;
    this.element = h(
      "div",
      {
        class: "matrixchart",
        tabindex: "0",
        role: "img",
        "aria-label": visible(label),
        keydown: (event: KeyboardEvent) => this.key(event),
        blur: () => this.point(null),
      },
      this.ground,
      this.over,
      this.tip,
      this.scale,
    );
    this.listen();
    const watcher = new ResizeObserver(() => this.draw());
    watcher.observe(this.element);
    this.ends.push(
      () => watcher.disconnect(),
      onTheme(() => this.draw()),
    );
  }

  destroy(): void {
    this.ends.forEach((end) => end());
  }

  private draw(): void {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    const inks = screenInks(theme());
    const frame = (this.frame = matrixFrame(this.panel, this.view, width, TOP));
    const { left, right, top, bottom } = frame.box;
    const picture = chart({ width, height: bottom + BELOW, marks: matrixMarks(this.panel, frame, inks) });
    this.cursor = paint({ tag: "g", marks: [], attributes: { class: "cursor" } });
    picture.append(this.cursor);
    replace(this.ground, picture);
    const place = { left, top, width: right - left, height: bottom - top };
    for (const [key, value] of Object.entries(place)) this.over.style.setProperty(key, `${value}px`);
    this.drawScale();
    this.point(this.pointed);
  }

  private drawScale(): void {
    const stops = Array.from({ length: 21 }, (_, i) => screenInks(theme()).cell(i / 20, "sequential"));
    const bar = h("div", { class: "scale-bar", style: `background:linear-gradient(to right, ${stops.join(", ")})` });
    const labels = [0, 0.5, 1].map((place) => h("span", {}, short(weightValue(place, this.panel.scale))));
    replace(
      this.scale,
      h("div", { class: "scale-name" }, this.panel.name),
      bar,
      h("div", { class: "scale-labels" }, ...labels),
    );
  }

  private listen(): void {
    this.over.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.pressed = this.pixel(event);
      this.over.setPointerCapture(event.pointerId);
    });
    this.over.addEventListener("pointermove", (event) => this.move(event));
    this.over.addEventListener("pointerup", (event) => this.release(event));
    this.over.addEventListener("pointercancel", () => this.stopDrag());
    this.over.addEventListener("pointerleave", () => this.point(null));
    this.over.addEventListener("dblclick", () => this.zoom(null));
  }

  private pixel(event: PointerEvent): [number, number] {
    const box = this.over.getBoundingClientRect();
    const within = (value: number, most: number) => Math.min(most - 0.01, Math.max(0, value));
    return [within(event.clientX - box.left, box.width), within(event.clientY - box.top, box.height)];
  }

  private cellAt([x, y]: [number, number]): Cell {
    const { seen, cell } = this.frame!;
    return [seen.rows[0] + Math.floor(y / cell[1]), seen.columns[0] + Math.floor(x / cell[0])];
  }

  private move(event: PointerEvent): void {
    if (!this.frame) return;
    const at = this.pixel(event);
    this.point(this.cellAt(at));
    if (!this.pressed) return;
    const [from, to] = [this.pressed, at];
    this.selection.hidden = far(from, to) < FAR;
    const sides = { left: Math.min(from[0], to[0]), top: Math.min(from[1], to[1]) };
    const size = { width: Math.abs(to[0] - from[0]), height: Math.abs(to[1] - from[1]), bottom: "auto" };
    for (const [key, value] of Object.entries({ ...sides, ...size }))
      this.selection.style.setProperty(key, typeof value === "number" ? `${value}px` : value);
  }

  private release(event: PointerEvent): void {
    const [from, to] = [this.pressed, this.pixel(event)];
    this.stopDrag();
    if (!from || !this.frame || far(from, to) < FAR) return;
    const [a, b] = [this.cellAt(from), this.cellAt(to)];
    this.zoom([ordered(a[0], b[0]), ordered(a[1], b[1])]);
  }

  private stopDrag(): void {
    this.pressed = null;
    this.selection.hidden = true;
  }

  /** Queries and keys from and up to; null for all. */
  private zoom(to: [[number, number], [number, number]] | null): void {
    const all: [number, number] = [0, this.panel.tokens.length];
    this.view = { ...this.view, rows: to && clamped(to[0], all), range: to && clamped(to[1], all) };
    this.draw();
  }

  /** Says what a cell is. */
  private point(cell: Cell | null): void {
    this.pointed = cell;
    this.tip.classList.toggle("on", cell !== null);
    this.cursor?.replaceChildren();
    if (!cell || !this.frame) return;
    const { box, seen, cell: size } = this.frame;
    const [row, column] = cell;
    const { tokens, weights } = this.panel;
    const one = (name: string, at: number) =>
      h("div", { class: "tip-row" }, `${name} ${at} `, h("bdi", { class: "tip-token" }, token(tokens[at])));
    const weight = weights[row * tokens.length + column];
    const reading = column > row ? "comes later: not seen" : h("b", {}, number(weight));
    replace(this.tip, one("Query", row), one("Key", column), h("div", {}, "Weight ", reading));
    const [x, y] = [box.left + (column - seen.columns[0]) * size[0], box.top + (row - seen.rows[0]) * size[1]];
    const frame = { fill: "none", stroke: "var(--accent)", "stroke-width": 1.5 };
    this.cursor?.append(paint(rect(x, y, Math.max(2, size[0]), Math.max(2, size[1]), frame)));
    const right = x > this.element.clientWidth / 2;
    this.tip.style.left = right ? "" : `${x + size[0] + 10}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - x + 10}px` : "";
    this.tip.style.top = `${Math.max(0, y - 12)}px`;
  }

  private key(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const seen = seenBy(this.panel, this.view);
    const [row, column] = this.pointed ?? [seen.rows[0], seen.columns[0]];
    const within = (at: number, [from, to]: [number, number]) => Math.min(to - 1, Math.max(from, at));
    const acts: Record<string, () => void> = {
      "+": () => this.zoom([around(row, seen.rows, 0.5), around(column, seen.columns, 0.5)]),
      "=": () => this.zoom([around(row, seen.rows, 0.5), around(column, seen.columns, 0.5)]),
      "-": () => this.zoom([around(row, seen.rows, 2), around(column, seen.columns, 2)]),
      "0": () => this.zoom(null),
    };
    if (step) this.point([within(row + step[0], seen.rows), within(column + step[1], seen.columns)]);
    else if (Object.hasOwn(acts, event.key)) acts[event.key]();
    else return;
    event.preventDefault();
  }
}

function far(from: [number, number], to: [number, number]): number {
  return Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]));
}

function ordered(a: number, b: number): [number, number] {
  return [Math.min(a, b), Math.max(a, b) + 1];
}

/** At least four tokens, within what there is. */
function clamped([from, to]: [number, number], [least, most]: [number, number]): [number, number] {
  const start = Math.max(least, Math.min(from, most - 4));
  return [start, Math.min(most, Math.max(to, start + 4))];
}

function around(at: number, [from, to]: [number, number], factor: number): [number, number] {
  const half = ((to - from) * factor) / 2;
  return [Math.round(at - half), Math.round(at + half)];
}
