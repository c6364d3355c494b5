// All heads of a layer, small, side by side; a click goes to one.

import { condensed, linePath } from "../charts/curves";
import { screenInks } from "../charts/inks";
import { path, rect, type Mark } from "../charts/marks";
import { chart } from "../charts/paint";
import { dashes } from "../charts/palette";
import { reach } from "../charts/scales";
import type { Packed } from "../data/api";
import { apart, gapOf } from "../data/gap";
import type { ProfileHeader, Region } from "../data/types";
import { h, replace } from "../ui/dom";
import { theme } from "../ui/theme";
import { loading, type Pane } from "./pane";

type Profiles = Packed<ProfileHeader>;
const [WIDTH, HEIGHT] = [132, 64];
const AT_ONCE = 4; // drawn in one frame

export class Multiples {
  readonly element = h("section", { class: "card multiples" }, loading("all heads of the layer"));
  private readonly grid = h("div", { class: "grid" });
  private frame = 0;
  private shown: { profiles: Profiles; key: string } | null = null;

  constructor(private readonly pane: Pane) {}

  destroy(): void {
    cancelAnimationFrame(this.frame);
  }

  async update(mine: () => boolean, view: string, regions: Region[]): Promise<void> {
    const { pane } = this;
    const asked = { model: pane.model.name, layer: pane.layer, queries: pane.queries, view };
    const profiles = await pane.api.packed<ProfileHeader>("layer", asked);
    if (!mine()) return;
    const key = JSON.stringify([pane.state.off, pane.first]);
    if (this.shown?.profiles !== profiles || this.shown.key !== key) {
      this.draw(profiles, view === "whole" ? regions : []);
      this.shown = { profiles, key };
    }
    this.grid
      .querySelectorAll("button")
      .forEach((cell, i) => cell.setAttribute("aria-pressed", String(i + 1 === pane.head)));
  }

  private draw(profiles: Profiles, regions: Region[]): void {
    const { pane } = this;
    const names = [...profiles.arrays.keys()].filter((name) => !pane.state.off.includes(name));
    const cells = Array.from({ length: pane.model.heads }, (_, head) => {
      const go = () => pane.go({ head: head + 1 });
      return h(
        "button",
        { type: "button", "data-head": head + 1, click: go },
        h("span", {}, `Head ${head + 1}`),
        h("div", { class: "small" }),
      );
    });
    replace(this.grid, ...cells);
    const title = h("h3", {}, `All heads of layer ${pane.layer}`);
    const note = h("p", { class: "hint" }, "Each on its own scale; lines and view as above.");
    replace(this.element, h("header", { class: "card-head" }, title), this.grid, note);
    const shaded = regions.filter((one) => names.includes(one.condition));
    this.inTurn(
      cells.map((cell, head) => () => {
        const marks = this.marks(profiles, names, head, shaded);
        replace(cell.lastElementChild!, chart({ width: WIDTH, height: HEIGHT, marks }));
      }),
    );
  }

  /** A few at a time, so that whoever goes on does not wait for all of them. */
  private inTurn(drawings: (() => void)[]): void {
    cancelAnimationFrame(this.frame);
    drawings.splice(0, AT_ONCE).forEach((draw) => draw());
    if (drawings.length) this.frame = requestAnimationFrame(() => this.inTurn(drawings));
  }

  private marks({ header, arrays }: Profiles, names: string[], head: number, regions: Region[]): Mark[] {
    const start = this.pane.first ? 0 : 1;
    const gap = gapOf(regions, this.pane.condition);
    const filled = new Set(regions.map((one) => one.condition));
    const lines = names.map((name) => {
      const { shape, values } = arrays.get(name)!;
      const y: (number | null)[] = Array.from(
        values.subarray(head * shape[1] + start, head * shape[1] + header.reach[name]),
      );
      const whole = { name, y, x: y.map((_, i) => start + i) };
      return gap && !filled.has(name) ? apart(whole, gap) : whole;
    });
    const longest = Math.max(1, ...lines.map((line) => (line.x.at(-1) ?? 0) - start + 1));
    const [low, high] = reach(lines.flatMap((line) => line.y));
    const px = (x: number) => 2 + ((x - start) / longest) * (WIDTH - 4);
    const py = (value: number) => HEIGHT - 3 - ((value - low) / (high - low)) * (HEIGHT - 6);
    const inks = screenInks(theme());
    const places = new Map(regions.map((one) => [`${one.start} ${one.stop}`, one]));
    const shade = { fill: inks.shade, "fill-opacity": 0.18 };
    return [
      ...[...places.values()].map(({ start: from, stop }) => rect(px(from), 0, px(stop) - px(from), HEIGHT, shade)),
      ...lines.map(({ name, x, y }) => {
        const look = this.pane.look(name);
        const d = linePath(condensed({ x, y }, WIDTH), px, py);
        const dash = y.length > 2 * WIDTH ? undefined : dashes(look.dash, 0.5); // many dashes cost more than they tell
        return path(d, { stroke: inks.line(look.style), "stroke-width": 1.1, "stroke-dasharray": dash });
      }),
    ];
  }
}
