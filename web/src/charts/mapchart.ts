// Cells in rows and columns on the page: hover reads them, a click or arrow keys choose one.

import type { MapPanel } from "../data/panels";
import { h, replace } from "../ui/dom";
import { interval, number, visible } from "../ui/text";
import { onTheme, theme } from "../ui/theme";
import { screenInks } from "./inks";
import { chosenMark, gridHeight, gridOf, mapMarks, type Grid } from "./map";
import { chart, paint } from "./paint";
import { coloursOf, NOTHING } from "./scales";

export interface MapOptions {
  chosen?: [number, number] | null; // row and column from 0
  choose?: (row: number, column: number) => void;
  highest?: number; // pixels of the whole map at most
}

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export class MapChart {
  readonly element: HTMLElement;
  private readonly ground: HTMLElement;
  private readonly picture = h("div", {});
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly scale = h("div", { class: "map-scale" });
  private readonly ends: (() => void)[] = [];
  private grid: Grid | null = null;
  private frame: SVGElement | null = null; // around the chosen cell

  constructor(
    private panel: MapPanel,
    private readonly options: MapOptions = {},
  ) {
    const live = Boolean(options.choose);
    const label = `${panel.title}: ${panel.name} by ${panel.down} and ${panel.across}. Arrow keys move.`;
    this.ground = h(
      "div",
      {
        class: live ? "map-ground pickable" : "map-ground",
        tabindex: "0",
        role: live ? "application" : "img",
        "aria-label": visible(label),
        mousemove: (event: MouseEvent) => this.point(this.cellAt(event)),
        mouseleave: () => this.point(null),
        blur: () => this.point(null),
        click: (event: MouseEvent) => this.click(event),
        keydown: (event: KeyboardEvent) => this.key(event),
      },
      this.picture,
      this.tip,
    );
    this.element = h("div", { class: "mapchart" }, this.ground, this.scale);
    const watcher = new ResizeObserver(() => this.draw());
    watcher.observe(this.element);
    this.ends.push(
      () => watcher.disconnect(),
      onTheme(() => this.draw()),
    );
  }

  /** Another metric or condition in the same frame. */
  show(panel: MapPanel): void {
    this.panel = panel;
    this.draw();
  }

  choose(row: number, column: number): void {
    this.options.chosen = [row, column];
    this.drawChosen();
  }

  destroy(): void {
    this.ends.forEach((end) => end());
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    this.grid = gridOf(this.panel, width, this.options.highest ?? 560);
    const marks = mapMarks(this.panel, this.grid, screenInks(theme()));
    replace(this.picture, chart({ width, height: gridHeight(this.panel, this.grid), marks }));
    this.frame = null;
    this.drawChosen();
    this.drawScale();
  }

  private drawChosen(): void {
    this.frame?.remove();
    if (!this.options.chosen || !this.grid) return;
    this.frame = paint(chosenMark(this.options.chosen, this.grid, screenInks(theme())));
    this.picture.firstElementChild?.append(this.frame);
  }

  private drawScale(): void {
    const colours = coloursOf(this.panel);
    const stops = Array.from({ length: 21 }, (_, i) => screenInks(theme()).cell(i / 20, colours.hues));
    const bar = h("div", { class: "scale-bar", style: `background:linear-gradient(to right, ${stops.join(", ")})` });
    const labels = [0, 0.5, 1].map((place) => h("span", {}, number(colours.value(place))));
    const open = NOTHING[this.panel.scale] !== undefined;
    const note = open ? h("span", { class: "scale-note" }, "dot: interval reaches no change") : null;
    replace(
      this.scale,
      h("div", { class: "scale-name" }, this.panel.name),
      bar,
      h("div", { class: "scale-labels" }, ...labels),
      note,
    );
  }

  private cellAt(event: MouseEvent): [number, number] | null {
    if (!this.grid) return null;
    const box = this.ground.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.grid.left) / this.grid.side);
    const row = Math.floor((event.clientY - box.top) / this.grid.down);
    const inside = row >= 0 && column >= 0 && row < this.panel.rows.length && column < this.panel.columns.length;
    return inside ? [row, column] : null;
  }

  private point(cell: [number, number] | null): void {
    this.tip.classList.toggle("on", cell !== null);
    if (!cell || !this.grid) return;
    const [i, j] = cell;
    const { left, side, down: tall } = this.grid;
    const { rows, columns, down, across, name, value, low, high } = this.panel;
    const where = `${capital(down)} ${rows[i]}, ${across} ${columns[j]}`;
    const reading = h("div", {}, `${name}: `, h("b", {}, interval(value[i][j], low[i][j], high[i][j])));
    replace(this.tip, h("div", { class: "tip-head" }, h("bdi", {}, visible(where))), reading);
    const x = left + (j + 1) * side + 8;
    const right = x > this.element.clientWidth / 2;
    this.tip.style.left = right ? "" : `${x}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - left - j * side + 8}px` : "";
    this.tip.style.top = `${Math.max(0, i * tall - 10)}px`;
  }

  private click(event: MouseEvent): void {
    const cell = this.cellAt(event);
    if (cell) this.options.choose?.(...cell);
  }

  private key(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = this.options.chosen ?? [0, 0];
    const within = (place: number, count: number) => Math.min(count - 1, Math.max(0, place));
    const next: [number, number] = [
      within(row + step[0], this.panel.rows.length),
      within(column + step[1], this.panel.columns.length),
    ];
    this.choose(...next);
    this.options.choose?.(...next);
    this.point(next);
  }
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
