// Cells in rows and columns on a canvas: hover tells, a click or arrow keys choose.

import { h, replace } from "./dom";
import type { MapPanel } from "./panels";
import { coloursOf, isOpen, named, NOTHING } from "./scales";
import { interval, number, visible } from "./text";
import { ink, onTheme } from "./theme";

export interface MapOptions {
  chosen?: [number, number] | null; // row and column from 0
  choose?: (row: number, column: number) => void;
  highest?: number; // pixels of the whole map at most
}

export class MapChart {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly scale = h("div", { class: "map-scale" });
  private readonly ends: (() => void)[] = [];
  private left = 30;
  private side = 10; // of a cell, across
  private down = 10;

  constructor(
    private panel: MapPanel,
    private readonly options: MapOptions = {},
  ) {
    const live = Boolean(options.choose);
    this.canvas = h("canvas", {
      class: live ? "live" : "",
      tabindex: "0",
      role: live ? "application" : "img",
      "aria-label": visible(`${panel.title}: ${panel.name} by ${panel.down} and ${panel.across}. Arrow keys move.`),
      mousemove: (event: Event) => this.hover(event as MouseEvent),
      mouseleave: () => this.point(null),
      blur: () => this.point(null),
      click: (event: Event) => this.click(event as MouseEvent),
      keydown: (event: Event) => this.key(event as KeyboardEvent),
    });
    this.element = h("div", { class: "mapchart" }, h("div", { class: "map-ground" }, this.canvas, this.tip), this.scale);
    const watcher = new ResizeObserver(() => this.draw());
    watcher.observe(this.element);
    this.ends.push(() => watcher.disconnect(), onTheme(() => this.draw()));
  }

  /** Another metric or condition in the same frame. */
  show(panel: MapPanel): void {
    this.panel = panel;
    this.draw();
  }

  choose(row: number, column: number): void {
    this.options.chosen = [row, column];
    this.draw();
  }

  destroy(): void {
    this.ends.forEach((end) => end());
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    const { rows, columns } = this.panel;
    const context = this.canvas.getContext("2d")!;
    const font = "11px system-ui, sans-serif";
    context.font = font;
    this.left = Math.max(...rows.map((row) => context.measureText(visible(String(row))).width)) + 26;
    this.side = (width - this.left - 4) / columns.length;
    const most = (this.options.highest ?? 560) / rows.length;
    const words = rows.some((row) => typeof row === "string");
    this.down = words ? 15 : Math.max(Math.min(5, most), Math.min(this.side, most, 22));
    this.side = Math.min(this.side, 3 * this.down, 44);
    const height = this.down * rows.length + 38;
    const ratio = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = font;
    context.direction = "ltr";
    this.cells(context);
    this.names(context);
    this.mark(context);
    this.drawScale();
  }

  private cells(context: CanvasRenderingContext2D): void {
    const colours = coloursOf(this.panel);
    const gap = this.side > 7 && this.down > 7 ? 1 : 0;
    this.panel.rows.forEach((_, i) => {
      this.panel.columns.forEach((__, j) => {
        const [x, y] = [this.left + j * this.side, i * this.down];
        context.fillStyle = colours.colour(this.panel.colour[i][j]) ?? ink("missing");
        context.fillRect(x, y, this.side - gap, this.down - gap);
        if (isOpen(this.panel, i, j)) {
          context.fillStyle = ink("soft");
          context.beginPath();
          context.arc(x + (this.side - gap) / 2, y + (this.down - gap) / 2, Math.min(1.8, this.down / 6), 0, 7);
          context.fill();
        }
      });
    });
  }

  private names(context: CanvasRenderingContext2D): void {
    const { rows, columns, down, across } = this.panel;
    context.fillStyle = ink("soft");
    context.textBaseline = "middle";
    context.textAlign = "right";
    const words = rows.some((row) => typeof row === "string");
    for (const i of words ? rows.keys() : named(rows.length, this.down, 13)) {
      context.fillText(visible(String(rows[i])), this.left - 5, (i + 0.5) * this.down);
    }
    context.textAlign = "center";
    const below = this.down * rows.length;
    for (const j of named(columns.length, this.side, 22)) {
      context.fillText(visible(String(columns[j])), this.left + (j + 0.5) * this.side, below + 10);
    }
    context.fillText(across, this.left + (this.side * columns.length) / 2, below + 28);
    if (words) return;
    context.save();
    context.translate(7, below / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(down, 0, 0);
    context.restore();
  }

  private mark(context: CanvasRenderingContext2D): void {
    if (!this.options.chosen) return;
    const [row, column] = this.options.chosen;
    const [x, y] = [this.left + column * this.side, row * this.down];
    context.lineWidth = 2;
    context.strokeStyle = ink("text");
    context.strokeRect(x - 0.5, Math.max(1, y - 0.5), this.side, this.down);
  }

  private drawScale(): void {
    const colours = coloursOf(this.panel);
    const stops = Array.from({ length: 21 }, (_, i) => colours.colour(colours.value(i / 20)));
    const bar = h("div", { class: "scale-bar", style: `background:linear-gradient(to right, ${stops.join(", ")})` });
    const middle = h("span", {}, number(colours.value(0.5)));
    const open = NOTHING[this.panel.scale] !== undefined;
    const note = open ? h("span", { class: "scale-note" }, "dot: interval reaches no change") : null;
    const labels = h("div", { class: "scale-labels" }, h("span", {}, number(colours.low)), middle, h("span", {}, number(colours.high)));
    replace(this.scale, h("div", { class: "scale-name" }, this.panel.name), bar, labels, note);
  }

  private cellAt(event: MouseEvent): [number, number] | null {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.side);
    const row = Math.floor((event.clientY - box.top) / this.down);
    const inside = row >= 0 && column >= 0 && row < this.panel.rows.length && column < this.panel.columns.length;
    return inside ? [row, column] : null;
  }

  private hover(event: MouseEvent): void {
    this.point(this.cellAt(event));
  }

  private point(cell: [number, number] | null): void {
    this.tip.classList.toggle("on", cell !== null);
    if (!cell) return;
    const [i, j] = cell;
    const { rows, columns, down, across, name, value, low, high } = this.panel;
    const where = `${capital(down)} ${rows[i]}, ${across} ${columns[j]}`;
    const words = `${interval(value[i][j], low[i][j], high[i][j])}`;
    replace(this.tip, h("div", { class: "tip-head" }, h("bdi", {}, visible(where))), h("div", {}, `${name}: `, h("b", {}, words)));
    const x = this.left + (j + 1) * this.side + 8;
    const right = x > this.element.clientWidth / 2;
    this.tip.style.left = right ? "" : `${x}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - this.left - j * this.side + 8}px` : "";
    this.tip.style.top = `${Math.max(0, i * this.down - 10)}px`;
  }

  private click(event: MouseEvent): void {
    const cell = this.cellAt(event);
    if (cell) this.options.choose?.(...cell);
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = this.options.chosen ?? [0, 0];
    const next: [number, number] = [
      Math.min(this.panel.rows.length - 1, Math.max(0, row + step[0])),
      Math.min(this.panel.columns.length - 1, Math.max(0, column + step[1])),
    ];
    this.choose(...next);
    this.options.choose?.(...next);
    this.point(next);
  }
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
