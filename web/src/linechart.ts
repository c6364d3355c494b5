// Curves with bands: hover and keys read them, dragging zooms, filler is shaded, tokens stand under the axis when near.

import uPlot from "uplot";
import { h, replace } from "./dom";
import { binOf, clipped, finite, placeName, reach, regionsOf, short, type Line, type LinePanel } from "./panels";
import { interval, token, visible } from "./text";
import { DASHES, faded, ink, lineColour, lineVariable, onTheme } from "./theme";

export interface LineOptions {
  height?: number;
  band?: boolean;
  off?: Set<string>;
  range?: [number, number] | null;
  zoomed?: (range: [number, number] | null) => void;
  pick?: (x: number) => void; // a click on a place
}

const MANY = 700; // points of a line, beyond which its dashes cost more than they tell
const TOKEN_PITCH = 13; // pixels that a token's text needs under the axis

export class LineChart {
  readonly element: HTMLElement;
  private plot: uPlot | null = null;
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly xs: number[];
  private readonly at: Map<number, number>[]; // by line: where in it a place on the x axis is
  private readonly ends: (() => void)[] = [];
  private pointed: number | null = null;

  constructor(
    readonly panel: LinePanel,
    readonly options: LineOptions = {},
  ) {
    this.xs = [...new Set(panel.series.flatMap((line) => Array.from(line.x)))].sort((a, b) => a - b);
    this.at = panel.series.map((line) => new Map(Array.from(line.x, (x, i) => [x, i])));
    this.element = h("div", {
      class: "linechart",
      tabindex: "0",
      role: "img",
      "aria-label": visible(`${panel.title}: ${panel.y} by ${panel.x}. Arrow keys read values, plus and minus zoom, 0 shows all.`),
      keydown: (event: Event) => this.key(event as KeyboardEvent),
      blur: () => this.point(null),
    });
    const watcher = new ResizeObserver(() => this.resize());
    watcher.observe(this.element);
    this.ends.push(() => watcher.disconnect(), onTheme(() => this.plot?.redraw()));
  }

  get range(): [number, number] | null {
    return this.options.range ?? null;
  }

  get off(): Set<string> {
    return this.options.off ?? new Set();
  }

  private get band(): boolean {
    return this.options.band ?? true;
  }

  /** Other lines on, or bands off: the chart stays where it is. */
  show(off: Set<string>, band = this.band): void {
    [this.options.off, this.options.band] = [off, band];
    this.plot?.batch(() => {
      this.panel.series.forEach((line, i) => {
        const on = !off.has(line.label);
        this.plot!.setSeries(3 * i + 3, { show: on });
        this.plot!.setSeries(3 * i + 1, { show: on && band });
        this.plot!.setSeries(3 * i + 2, { show: on && band });
      });
    });
  }

  zoom(range: [number, number] | null, tell = true): void {
    const all: [number, number] = [this.xs[0], this.xs.at(-1)!];
    const wide = range && range[1] - range[0] >= all[1] - all[0];
    const next = !range || wide ? null : clamp(range, all);
    this.options.range = next;
    const [min, max] = next ?? this.wholeRange();
    this.plot?.setScale("x", { min, max });
    if (tell) this.options.zoomed?.(next);
  }

  destroy(): void {
    this.ends.forEach((end) => end());
    this.plot?.destroy();
  }

  private wholeRange(): [number, number] {
    const [low, high] = [this.xs[0] ?? 0, this.xs.at(-1) ?? 1];
    const room = this.panel.tokens ? 0.5 : Math.max(0.3, 0.01 * (high - low));
    return this.panel.steps ? [low, high + 1] : [low - room, high + room];
  }

  private resize(): void {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    const height = this.options.height ?? 300;
    if (this.plot) this.plot.setSize({ width, height });
    else this.draw(width, height);
  }

  private draw(width: number, height: number): void {
    const [min, max] = this.range ?? this.wholeRange();
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      padding: [14, 12, 0, 0],
      cursor: { y: false, drag: { x: true, y: false, dist: 6 }, points: { show: true, size: 7 } },
      scales: {
        x: { time: false, min, max, range: (_, low, high) => [low, high] },
        y: { range: () => reach(this.inView(), this.panel.zero, this.panel.none) },
      },
      axes: [this.xAxis(), this.yAxis()],
      series: [{}, ...this.panel.series.flatMap((line) => this.lines(line))],
      bands: this.panel.series.map((line, i) => ({
        series: [3 * i + 2, 3 * i + 1],
        fill: () => faded(lineColour(line.style), line.thin ? 0.08 : 0.18),
      })),
      hooks: {
        drawAxes: [(plot) => this.background(plot)],
        setCursor: [(plot) => this.hover(plot)],
        setSelect: [(plot) => this.selected(plot)],
        ready: [(plot) => this.ready(plot)],
      },
    };
    this.plot = new uPlot(options, this.data(), this.element);
    this.element.append(this.tip);
  }

  private ready(plot: uPlot): void {
    plot.over.addEventListener("dblclick", () => this.zoom(null));
    plot.over.addEventListener("click", () => {
      if (this.pointed !== null) this.options.pick?.(this.pointed);
    });
  }

  private lines(line: Line): uPlot.Series[] {
    const on = !this.off.has(line.label);
    const edge: uPlot.Series = { show: on && this.band, stroke: "transparent", width: 0, points: { show: false } };
    const few = line.x.length <= 40 && !this.panel.tokens && !this.panel.steps;
    const stepped = this.panel.steps ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {};
    return [
      edge,
      { ...edge },
      {
        show: on,
        stroke: () => lineColour(line.style),
        width: line.thin ? 1 : 1.7,
        dash: line.x.length > MANY ? [] : DASHES[line.dash % DASHES.length],
        points: { show: few, size: 5, fill: () => ink("card") },
        ...stepped,
      },
    ];
  }

  private data(): uPlot.AlignedData {
    const pick = (values: ArrayLike<number | null> | undefined, i: number): (number | null)[] =>
      this.xs.map((x) => {
        const place = this.at[i].get(x);
        const value = place === undefined ? null : values?.[place];
        return finite(value) ? value : null;
      });
    const columns = this.panel.series.flatMap((line, i) => [pick(line.low, i), pick(line.high, i), pick(line.y, i)]);
    return [this.xs, ...columns] as uPlot.AlignedData;
  }

  private *inView(): Generator<number | null> {
    const [low, high] = this.range ?? [-Infinity, Infinity];
    for (const line of this.panel.series) {
      if (this.off.has(line.label)) continue;
      for (let i = 0; i < line.x.length; i++) {
        if (line.x[i] < low || line.x[i] > high) continue;
        yield line.y[i];
        if (this.band && line.low && line.high) {
          yield line.low[i];
          yield line.high[i];
        }
      }
    }
  }

  private xAxis(): uPlot.Axis {
    const near = (plot: uPlot) => {
      const { min, max } = plot.scales.x;
      return Boolean(this.panel.tokens?.length) && (max! - min!) * TOKEN_PITCH < plot.bbox.width / uPlot.pxRatio;
    };
    const name = (plot: uPlot, x: number): string => {
      if (this.panel.edges) return this.edgeName(x);
      return near(plot) ? `${clipped(token(this.panel.tokens![x] ?? ""))}  ${x}`.trim() : String(x).replace("-", "\u2212");
    };
    return {
      ...this.axis(this.panel.x),
      space: 46,
      rotate: (plot) => (near(plot) ? -90 : 0),
      size: (plot) => (near(plot) ? 104 : 34),
      splits: (plot, _, low, high, step) => {
        if (near(plot)) return range(Math.max(0, Math.ceil(low)), Math.floor(high), 1);
        if (this.panel.edges) return this.edgeSplits(low, high, (44 * uPlot.pxRatio * (high - low)) / plot.bbox.width);
        return range(Math.ceil(low / step) * step, high, Math.max(1, step));
      },
      values: (plot, found) => found.map((x) => name(plot, x)),
      incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000],
    };
  }

  /** Zero, and a few powers of ten on either side. */
  private edgeSplits(low: number, high: number, apart: number): number[] {
    const edges = this.panel.edges!;
    const found: number[] = [];
    for (let i = Math.max(0, Math.ceil(low)); i <= Math.min(edges.length - 1, high); i++) {
      const power = Math.log10(Math.abs(edges[i]));
      const nearest = Math.abs(power - Math.round(power)) < Math.log10(2) / 8;
      if (nearest && (!found.length || i - found.at(-1)! > apart)) found.push(i);
    }
    return found;
  }

  private edgeName(x: number): string {
    const edge = this.panel.edges![x];
    return edge === undefined ? "" : `${edge < 0 ? "\u2212" : ""}${short(10 ** Math.round(Math.log10(Math.abs(edge))))}`;
  }

  private yAxis(): uPlot.Axis {
    const room = (labels: string[] | null) => 16 + 7 * Math.max(4, ...(labels ?? []).map((label) => label.length));
    return { ...this.axis(this.panel.y), size: (_, labels) => room(labels), space: 36, values: (_, found) => found.map(short) };
  }

  private axis(label: string): uPlot.Axis {
    return {
      label,
      labelSize: 22,
      labelFont: "12px system-ui, sans-serif",
      font: "11px system-ui, sans-serif",
      stroke: () => ink("soft"),
      grid: { stroke: () => ink("line"), width: 1 },
      ticks: { stroke: () => ink("line"), width: 1, size: 4 },
    };
  }

  /** Behind the lines: where fillers stand, where they were taken out, and where nothing has changed. */
  private background(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const place = (x: number) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, plot.valToPos(x, "x", true)));
    ctx.save();
    ctx.direction = "ltr";
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = `${11 * uPlot.pxRatio}px system-ui, sans-serif`;
    this.drawRegions(ctx, bbox, place);
    ctx.strokeStyle = ink("soft");
    ctx.setLineDash([4 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
    ctx.lineWidth = uPlot.pxRatio;
    for (const cut of this.panel.cuts ?? []) {
      if (cut.at > plot.scales.x.min! && cut.at < plot.scales.x.max!) vertical(ctx, place(cut.at), bbox);
    }
    if (this.panel.eps && this.panel.edges) {
      for (const edge of [-this.panel.eps, this.panel.eps]) vertical(ctx, place(binOf(this.panel.edges, edge)), bbox);
    }
    if (finite(this.panel.none)) {
      const y = plot.valToPos(this.panel.none, "y", true);
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }

  private drawRegions(ctx: CanvasRenderingContext2D, bbox: uPlot.BBox, place: (x: number) => number): void {
    regionsOf(this.panel, this.off).forEach(({ start, stop, label }, level) => {
      const [left, right] = [place(start - 0.5), place(stop - 0.5)];
      if (right - left < 1) return;
      ctx.fillStyle = faded(ink("shade"), 0.16);
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.strokeStyle = ink("soft");
      ctx.setLineDash([3 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
      vertical(ctx, left, bbox);
      vertical(ctx, right, bbox);
      ctx.fillStyle = ink("soft");
      const y = bbox.top + (12 + 13 * level) * uPlot.pxRatio;
      ctx.fillText(visible(label), left + 4 * uPlot.pxRatio, y, Math.max(60, right - left));
    });
  }

  private hover(plot: uPlot): void {
    const { left, idx } = plot.cursor;
    if (left === undefined || left < 0 || idx === null || idx === undefined) return this.point(null);
    this.point(this.xs[idx]);
  }

  /** Says what is at a place on the x axis. */
  private point(x: number | null): void {
    this.pointed = x;
    this.tip.classList.toggle("on", x !== null);
    if (x === null || !this.plot) return;
    const text = this.panel.tokens?.[x];
    const head = h("div", { class: "tip-head" }, placeName(this.panel, x));
    const word = text === undefined ? null : h("div", { class: "tip-token" }, h("bdi", {}, token(text) || "(differs between problems)"));
    const rows = this.panel.series.flatMap((line, i) => {
      const place = this.at[i].get(x);
      if (this.off.has(line.label) || place === undefined || !finite(line.y[place])) return [];
      const n = line.n?.[place];
      return [
        h(
          "div",
          { class: "tip-row", "data-condition": line.condition },
          h("i", { style: `background:${lineVariable(line.style)}` }),
          h("bdi", { class: "tip-name" }, visible(line.label)),
          h("b", {}, interval(line.y[place], line.low?.[place], line.high?.[place])),
          finite(n) ? h("span", {}, this.panel.steps ? `count ${n}` : `n = ${n}`) : null,
        ),
      ];
    });
    replace(this.tip, head, word, ...rows);
    const at = this.plot.valToPos(x, "x") + this.plot.over.offsetLeft;
    const right = at > this.element.clientWidth / 2;
    this.tip.style.left = right ? "" : `${at + 14}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - at + 14}px` : "";
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 6) return;
    const found: [number, number] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(found);
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
    const [low, high] = this.range ?? this.wholeRange();
    if (event.key in steps) {
      const shown = this.xs.filter((x) => x >= low && x <= high);
      const here = this.pointed === null ? (steps[event.key] > 0 ? -1 : shown.length) : shown.indexOf(this.pointed);
      const next = shown[Math.min(shown.length - 1, Math.max(0, here + steps[event.key]))];
      if (next !== undefined && this.plot) {
        this.plot.setCursor({ left: this.plot.valToPos(next, "x"), top: 10 }, false);
        this.point(next);
      }
    } else if (event.key === "+" || event.key === "=") {
      const middle = this.pointed ?? (low + high) / 2;
      this.zoom([middle - (high - low) / 4, middle + (high - low) / 4]);
    } else if (event.key === "-") {
      this.zoom([low - (high - low) / 2, high + (high - low) / 2]);
    } else if (event.key === "0") {
      this.zoom(null);
    } else if (event.key === "Enter" && this.pointed !== null) {
      this.options.pick?.(this.pointed);
    } else {
      return;
    }
    event.preventDefault();
  }
}

function range(from: number, to: number, step: number): number[] {
  const found = [];
  for (let x = from; x <= to + 1e-9; x += step) found.push(Math.round(x * 1e9) / 1e9);
  return found;
}

function clamp([low, high]: [number, number], [least, most]: [number, number]): [number, number] {
  const narrow = high - low < 2 ? [(low + high) / 2 - 1, (low + high) / 2 + 1] : [low, high];
  return [Math.max(least - 0.5, narrow[0]), Math.min(most + 0.5, narrow[1])];
}

function vertical(ctx: CanvasRenderingContext2D, x: number, bbox: uPlot.BBox): void {
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
}
