// Curves on the page: hover and keys read them, dragging zooms, double-click shows all.

import { finite, placeName, type Line, type LinePanel, type View } from "../data/panels";
import { h, replace } from "../ui/dom";
import { interval, token, visible } from "../ui/text";
import { theme } from "../ui/theme";
import { lineVariable, screenInks } from "./inks";
import { lineFrame, lineMarks, shownLines, wholeRange, type Frame } from "./lines";
import { circle, vertical, type Mark } from "./marks";
import { chart, paint } from "./paint";

export interface LineOptions {
  height?: number;
  band?: boolean;
  off?: Set<string>;
  range?: [number, number] | null;
  zoomed?: (range: [number, number] | null) => void;
  pick?: (x: number) => void; // a click on a place
}

const FAR = 6; // pixels, from which on a movement is a drag

export class LineChart {
  readonly element: HTMLElement;
  private readonly ground = h("div", { class: "line-ground" });
  private readonly over = h("div", { class: "plot-over" });
  private readonly selection = h("div", { class: "selection", hidden: true });
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly xs: number[];
  private readonly at: Map<number, number>[]; // by line: where in it a place on the x axis is
  private readonly watcher = new ResizeObserver(() => this.draw());
  private frame: Frame | null = null;
  private cursor: SVGElement | null = null;
  private pointed: number | null = null;
  private dragged: number | null = null; // from where, in pixels of the picture

  constructor(
    readonly panel: LinePanel,
    readonly options: LineOptions = {},
  ) {
    this.xs = [...new Set(panel.series.flatMap((line) => line.x))].sort((a, b) => a - b);
    this.at = panel.series.map((line) => new Map(line.x.map((x, i) => [x, i])));
    this.over.append(this.selection);
    this.element = h(
      "div",
      {
        class: "linechart",
        tabindex: "0",
        role: "img",
        "aria-label": visible(
          `${panel.title}: ${panel.y} by ${panel.x}. Arrow keys read values, plus and minus zoom, 0 shows all.`,
        ),
        keydown: (event: KeyboardEvent) => this.key(event),
        blur: () => this.point(null),
      },
      this.ground,
      this.over,
      this.tip,
    );
    this.listen();
    this.watcher.observe(this.element);
  }

  get view(): View {
    const { off = new Set<string>(), band = true, range = null } = this.options;
    return { off, band, range };
  }

  /** Other lines are on; the chart stays where it is. */
  show(off: Set<string>): void {
    this.options.off = off;
    this.draw();
  }

  zoom(range: [number, number] | null): void {
    const all: [number, number] = [this.xs[0], this.xs.at(-1)!];
    const wide = range && range[1] - range[0] >= all[1] - all[0];
    this.options.range = !range || wide ? null : clamp(range, all);
    this.draw();
    this.options.zoomed?.(this.options.range);
  }

  destroy(): void {
    this.watcher.disconnect();
  }

  private draw(): void {
    const [width, height] = [Math.floor(this.element.clientWidth), this.options.height ?? 300];
    if (!width) return;
    const frame = lineFrame(this.panel, this.view, width, height);
    const picture = chart({ width, height, marks: lineMarks(this.panel, this.view, frame, screenInks(theme())) });
    this.cursor = paint({ tag: "g", marks: [], attributes: { class: "cursor" } });
    picture.append(this.cursor);
    replace(this.ground, picture);
    const { left, right, top, bottom } = frame.box;
    Object.assign(this.over.style, {
      left: `${left}px`,
      top: `${top}px`,
      width: `${right - left}px`,
      height: `${bottom - top}px`,
    });
    this.frame = frame;
    if (this.pointed !== null) this.point(this.pointed);
  }

  private listen(): void {
    this.over.addEventListener("pointerdown", (event) => this.press(event));
    this.over.addEventListener("pointermove", (event) => this.move(event));
    this.over.addEventListener("pointerup", (event) => this.release(event));
    this.over.addEventListener("pointercancel", () => this.stopDrag());
    this.over.addEventListener("pointerleave", () => this.point(null));
    this.over.addEventListener("dblclick", () => this.zoom(null));
  }

  /** The pixel of the picture under the pointer, within the data. */
  private pixel(event: PointerEvent): number {
    const { left, right } = this.frame!.box;
    return Math.min(right, Math.max(left, left + event.clientX - this.over.getBoundingClientRect().left));
  }

  private value(pixel: number): number {
    const { box, x } = this.frame!;
    return x[0] + ((pixel - box.left) / (box.right - box.left)) * (x[1] - x[0]);
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0 || !this.frame) return;
    this.dragged = this.pixel(event);
    this.over.setPointerCapture(event.pointerId);
  }

  private move(event: PointerEvent): void {
    if (!this.frame) return;
    this.point(this.nearest(this.value(this.pixel(event))));
    if (this.dragged === null) return;
    const [from, to] = [this.dragged, this.pixel(event)];
    const { left } = this.frame.box;
    this.selection.hidden = Math.abs(to - from) < FAR;
    Object.assign(this.selection.style, { left: `${Math.min(from, to) - left}px`, width: `${Math.abs(to - from)}px` });
  }

  private release(event: PointerEvent): void {
    const [from, to] = [this.dragged, this.pixel(event)];
    this.stopDrag();
    if (from === null) return;
    if (Math.abs(to - from) >= FAR) this.zoom([this.value(Math.min(from, to)), this.value(Math.max(from, to))]);
    else if (this.pointed !== null) this.options.pick?.(this.pointed);
  }

  private stopDrag(): void {
    this.dragged = null;
    this.selection.hidden = true;
  }

  private nearest(value: number): number | null {
    const [low, high] = this.frame!.x;
    let best: number | null = null;
    for (const x of this.xs) {
      if (x >= low && x <= high && (best === null || Math.abs(x - value) < Math.abs(best - value))) best = x;
    }
    return best;
  }

  /** Says what is at a place on the x axis. */
  private point(x: number | null): void {
    this.pointed = x;
    this.tip.classList.toggle("on", x !== null);
    this.cursor?.replaceChildren(...(x === null ? [] : this.cursorMarks(x).map(paint)));
    if (x === null || !this.frame) return;
    const text = this.panel.tokens?.[x];
    const token_ =
      text === undefined
        ? null
        : h("div", { class: "tip-token" }, h("bdi", {}, token(text) || "(differs between problems)"));
    replace(this.tip, h("div", { class: "tip-head" }, placeName(this.panel, x)), token_, ...this.readings(x));
    const at = this.frame.px(x);
    const right = at > this.element.clientWidth / 2;
    this.tip.style.left = right ? "" : `${at + 14}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - at + 14}px` : "";
  }

  private readings(x: number): HTMLElement[] {
    return this.linesAt(x).map(([line, i]) => {
      const n = line.n?.[i];
      return h(
        "div",
        { class: "tip-row", "data-condition": line.condition },
        h("i", { style: `background:${lineVariable(line.style)}` }),
        h("bdi", { class: "tip-name" }, visible(line.label)),
        h("b", {}, interval(line.y[i], line.low?.[i], line.high?.[i])),
        finite(n) ? h("span", {}, this.panel.steps ? `count ${n}` : `n = ${n}`) : null,
      );
    });
  }

  private cursorMarks(x: number): Mark[] {
    const { box, px, py } = this.frame!;
    const at = px(this.panel.steps ? x + 0.5 : x);
    const dots = this.linesAt(x).map(([line, i]) =>
      circle(at, py(line.y[i]!), 3.5, { fill: lineVariable(line.style) }),
    );
    return [vertical(at, box, { stroke: "var(--soft)", "stroke-dasharray": "3 3" }), ...dots];
  }

  /** The lines that are on and have a number at a place, with where in them it is. */
  private linesAt(x: number): [Line, number][] {
    const on = new Set(shownLines(this.panel, this.view));
    return this.panel.series.flatMap((line, i): [Line, number][] => {
      const place = this.at[i].get(x);
      return on.has(line) && place !== undefined && finite(line.y[place]) ? [[line, place]] : [];
    });
  }

  private key(event: KeyboardEvent): void {
    const [low, high] = this.options.range ?? wholeRange(this.panel);
    const middle = this.pointed ?? (low + high) / 2;
    const acts: Record<string, () => void> = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      "+": () => this.zoom([middle - (high - low) / 4, middle + (high - low) / 4]),
      "=": () => this.zoom([middle - (high - low) / 4, middle + (high - low) / 4]),
      "-": () => this.zoom([low - (high - low) / 2, high + (high - low) / 2]),
      "0": () => this.zoom(null),
      Enter: () => this.pointed !== null && this.options.pick?.(this.pointed),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    acts[event.key]();
    event.preventDefault();
  }

  /** To the next place, or the one before. */
  private step(by: number): void {
    const [low, high] = this.options.range ?? wholeRange(this.panel);
    const shown = this.xs.filter((x) => x >= low && x <= high);
    const here = this.pointed === null ? (by > 0 ? -1 : shown.length) : shown.indexOf(this.pointed);
    const next = shown[Math.min(shown.length - 1, Math.max(0, here + by))];
    if (next !== undefined) this.point(next);
  }
}

function clamp([low, high]: [number, number], [least, most]: [number, number]): [number, number] {
  const [from, to] = high - low < 2 ? [(low + high) / 2 - 1, (low + high) / 2 + 1] : [low, high];
  return [Math.max(least - 0.5, from), Math.min(most + 0.5, to)];
}
