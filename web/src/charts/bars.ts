// A panel of bars, or points, in groups as marks: the same on the screen and in a file.

import { finite, type Bar, type BarGroup, type BarPanel } from "../data/panels";
import { yAxis } from "./axes";
import type { Place } from "./curves";
import type { Inks } from "./inks";
import { legend, title } from "./legend";
import { circle, group, horizontal, path, rect, round, textWidth, words, type Box, type Mark } from "./marks";
import { reach, ticks } from "./scales";

const WIDEST = 96; // pixels of a bar with its room

/** Each label once, with its colour. */
export function barLabels(panel: BarPanel): { label: string; style: number }[] {
  const bars = panel.groups.flatMap((one) => one.bars);
  return [...new Map(bars.map(({ label, style }) => [label, { label, style }])).values()];
}

export function barMarks(panel: BarPanel, width: number, height: number, inks: Inks, top = 22): Mark[] {
  const groups = slots(panel);
  const pitch = (width - 72) / groups.length;
  const names = groups.map((one) => wrapped(one.label, pitch - 6));
  const most = Math.max(...names.map((lines) => lines.length));
  const turned = most > 3 || names.flat().some((text) => textWidth(text, 11) > pitch);
  const box = { left: 62, right: width - 10, top, bottom: height - (turned ? 104 : 20 + 14 * most) };
  const y = reach(
    panel.groups.flatMap((one) => one.bars.flatMap(valuesOf)),
    panel.mark === "bar",
    panel.none,
  );
  const py: Place = (value) => box.bottom - ((value - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
  const base = panel.mark === "bar" ? Math.max(y[0], 0) : null;
  return [
    ...yAxis(ticks(...y, height / 55), py, box, panel.y, inks),
    ...(finite(panel.none) ? [horizontal(py(panel.none), box, { stroke: inks.soft, "data-mark": "none" })] : []),
    ...groups.flatMap((one, i) => {
      const middle = box.left + pitch * (i + 0.5);
      const name = turned ? [turnedName(one.label, middle, box, inks)] : lowerName(names[i], middle, box, inks);
      return [...groupMarks(one.bars, middle, pitch, py, base, inks), ...name];
    }),
    horizontal(box.bottom, box, { stroke: inks.soft }),
  ];
}

/** Groups side by side; the bars of a single group stand apart over the whole width, each above its own name. */
function slots({ groups }: BarPanel): BarGroup[] {
  return groups.length === 1 ? groups[0].bars.map((bar) => ({ label: bar.label, bars: [bar] })) : groups;
}

function valuesOf(bar: Bar): (number | null | undefined)[] {
  return [bar.value, bar.low, bar.high, bar.published];
}

/** A name in lines of whole words, none wider than there is room for where that is possible. */
function wrapped(label: string, room: number): string[] {
  const lines = [""];
  for (const word of label.split(" ")) {
    const longer = `${lines.at(-1)!} ${word}`.trim();
    if (lines.at(-1) && textWidth(longer, 11) > room) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

function lowerName(lines: string[], x: number, box: Box, inks: Inks): Mark[] {
  const text = { "text-anchor": "middle", fill: inks.soft, "font-size": 11 };
  return lines.map((line, i) => words(x, box.bottom + 16 + 14 * i, line, text));
}

function turnedName(label: string, x: number, box: Box, inks: Inks): Mark {
  const [y, letters] = [box.bottom + 14, [...label]];
  const short = letters.length > 26 ? `${letters.slice(0, 25).join("")}\u2026` : label;
  const place = { transform: `rotate(-35 ${round(x)} ${y})`, "text-anchor": "end" };
  return words(x, y, short, { ...place, fill: inks.soft, "font-size": 10 });
}

function groupMarks(bars: Bar[], middle: number, pitch: number, py: Place, base: number | null, inks: Inks): Mark[] {
  const step = Math.min(WIDEST, (0.84 * pitch) / bars.length);
  return bars.map((bar, j) => {
    const x = middle + step * (j - (bars.length - 1) / 2);
    const parts = barParts(bar, x, 0.78 * step, py, base, inks);
    return group(parts, { class: "bar", "data-condition": bar.condition });
  });
}

/** One bar from `base`, or a point where that is null, with its interval and what was published. */
function barParts(bar: Bar, x: number, width: number, py: Place, base: number | null, inks: Inks): Mark[] {
  if (!finite(bar.value)) return [];
  const colour = inks.line(bar.style);
  const y = py(bar.value);
  const top = Math.min(y, finite(bar.high) ? py(bar.high) : y);
  return [
    ...(base === null
      ? []
      : [rect(x - width / 2, y, width, Math.max(0, py(base) - y), { fill: colour, "fill-opacity": 0.82 })]),
    ...whisker(bar, x, Math.min(5, width / 4), py, base === null ? colour : inks.text),
    ...(base === null ? [circle(x, y, 4, { fill: colour })] : []),
    ...(finite(bar.published) ? [diamond(x, py(bar.published), inks)] : []),
    ...(bar.text ? [words(x, top - 6, bar.text, { "text-anchor": "middle", fill: inks.text })] : []),
  ];
}

function whisker({ low, high }: Bar, x: number, cap: number, py: Place, stroke: string): Mark[] {
  if (!finite(low) || !finite(high)) return [];
  const [left, right, from, to] = [x - cap, x + cap, py(low), py(high)].map(round);
  const d = `M${round(x)} ${from}V${to}M${left} ${from}H${right}M${left} ${to}H${right}`;
  return [path(d, { stroke, "stroke-width": 1.3 })];
}

function diamond(x: number, y: number, inks: Inks): Mark {
  return path(`M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`, { stroke: inks.text });
}

/** The panel as it stands alone, with title and, where they do not stand below, the names of all bars. */
export function barPicture(panel: BarPanel, width: number, height: number, inks: Inks): Mark[] {
  const names = legend(panel.groups.length > 1 ? barLabels(panel) : [], 62, width - 10, inks);
  return [title(62, panel.title, inks), ...names.marks, ...barMarks(panel, width, height, inks, names.top)];
}
