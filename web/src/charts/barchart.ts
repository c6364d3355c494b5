// Bars on the page, read by pointing at them.

import type { Bar, BarPanel } from "../data/panels";
import { h, replace } from "../ui/dom";
import { interval, visible } from "../ui/text";
import { theme } from "../ui/theme";
import { barLabels, barMarks } from "./bars";
import { lineVariable, screenInks } from "./inks";
import { chart } from "./paint";

const HEIGHT = 300;

export class BarChart {
  readonly element: HTMLElement;
  private readonly ground = h("div", { class: "bars-ground" });
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly watcher = new ResizeObserver(() => this.draw());

  constructor(private readonly panel: BarPanel) {
    const label = described(panel);
    this.element = h(
      "div",
      { class: "barchart", tabindex: "0", role: "img", "aria-label": label },
      key(panel),
      this.ground,
      this.tip,
    );
    this.watcher.observe(this.element);
  }

  destroy(): void {
    this.watcher.disconnect();
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    const picture = chart({ width, height: HEIGHT, marks: barMarks(this.panel, width, HEIGHT, screenInks(theme())) });
    const all = this.panel.groups.flatMap((group) => group.bars.map((bar) => ({ group: group.label, bar })));
    picture.querySelectorAll<SVGElement>("g.bar").forEach((mark, i) => {
      mark.addEventListener("mouseenter", () => this.point(mark, all[i].group, all[i].bar));
      mark.addEventListener("mouseleave", () => this.tip.classList.remove("on"));
    });
    replace(this.ground, picture);
  }

  private point(mark: SVGElement, group: string, bar: Bar): void {
    this.tip.classList.add("on");
    const head = h(
      "div",
      { class: "tip-head" },
      h("bdi", {}, visible(group)),
      " \u00b7 ",
      h("bdi", {}, visible(bar.label)),
    );
    const value = h("b", {}, interval(bar.value, bar.low, bar.high));
    replace(
      this.tip,
      head,
      h("div", {}, value, bar.n === null ? null : ` n = ${bar.n}`),
      bar.note ? h("div", {}, bar.note) : null,
    );
    const [box, host] = [mark.getBoundingClientRect(), this.element.getBoundingClientRect()];
    const right = box.left - host.left > host.width / 2;
    this.tip.style.left = right ? "" : `${box.right - host.left + 8}px`;
    this.tip.style.right = right ? `${host.right - box.left + 8}px` : "";
    this.tip.style.top = `${Math.max(0, box.top - host.top)}px`;
  }
}

function key(panel: BarPanel): HTMLElement | null {
  const names = barLabels(panel);
  if (names.length < 2 || panel.groups.length < 2) return null; // a single group has its names below
  const dot = (style: number) => h("i", { class: "dot", style: `background:${lineVariable(style)}` });
  return h(
    "div",
    { class: "legend still" },
    ...names.map(({ label, style }) => h("span", {}, dot(style), h("bdi", {}, visible(label)))),
  );
}

function described(panel: BarPanel): string {
  const bars = panel.groups.flatMap((group) =>
    group.bars.map((bar) => `${group.label}, ${bar.label}: ${interval(bar.value, bar.low, bar.high)}`),
  );
  return visible(`${panel.title}. ${bars.join("; ")}`);
}
