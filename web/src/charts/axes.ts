// Axes of a panel of lines or bars: grid, ticks with their names, and labels.

import { short, type LinePanel } from "../data/panels";
import { token } from "../ui/text";
import type { Place } from "./curves";
import type { Inks } from "./inks";
import { horizontal, vertical, words, type Box, type Mark } from "./marks";
import { wholeTicks } from "./scales";

const TOKEN_PITCH = 8.5; // pixels that a token's text needs under the axis
const APART = 46; // pixels between numbers under the axis
const LETTER = 6.4; // pixels of a label, about

/** Pixels left of the data: the label, and the widest name of a tick. */
export function leftRoom(places: number[]): number {
  return 34 + 7 * Math.max(4, ...places.map((y) => short(y).length));
}

export function yAxis(places: number[], py: Place, box: Box, label: string, inks: Inks): Mark[] {
  const middle = Math.max((box.top + box.bottom) / 2, (LETTER * label.length) / 2); // a long one begins further down
  const marks = places.flatMap((y) => [
    horizontal(py(y), box, { stroke: inks.grid }),
    words(box.left - 8, py(y) + 4, short(y), { "text-anchor": "end", fill: inks.soft, "font-size": 11 }),
  ]);
  const turned = { "text-anchor": "middle", transform: `rotate(-90 14 ${middle})`, fill: inks.soft };
  return [...marks, words(14, middle, label, turned)];
}

/** Whether there is room for the text of every token. */
export function isNear(panel: LinePanel, range: [number, number], width: number): boolean {
  return Boolean(panel.tokens?.length) && (range[1] - range[0]) * TOKEN_PITCH < width;
}

/** Pixels below the data. */
export function bottomRoom(near: boolean): number {
  return near ? 112 : 48;
}

export function xAxis(panel: LinePanel, [x0, x1]: [number, number], px: Place, box: Box, inks: Inks): Mark[] {
  const near = isNear(panel, [x0, x1], box.right - box.left);
  const apart = (APART * (x1 - x0)) / (box.right - box.left);
  const places = near
    ? wholeTicks(Math.max(0, x0), x1, 1)
    : panel.edges
      ? powers(panel.edges, x0, x1, apart)
      : wholeTicks(x0, x1, apart);
  const marks = places.flatMap((x) => [
    vertical(px(x), box, { stroke: inks.grid }),
    near ? tokenName(panel, x, px, box, inks) : tickName(panel, x, px(x), box, inks),
  ]);
  const below = box.bottom + bottomRoom(near) - 8;
  return [...marks, words((box.left + box.right) / 2, below, panel.x, { "text-anchor": "middle", fill: inks.soft })];
}

function tickName(panel: LinePanel, x: number, at: number, box: Box, inks: Inks): Mark {
  const text = panel.edges ? powerName(panel.edges[x]) : String(x).replace("-", "\u2212");
  return words(at, box.bottom + 17, text, { "text-anchor": "middle", fill: inks.soft, "font-size": 11 });
}

/** As large as there is room for. */
function tokenName(panel: LinePanel, x: number, px: Place, box: Box, inks: Inks): Mark {
  const [at, size] = [px(x), Math.min(10.5, px(1) - px(0) - 0.5)];
  const text = `${clippedToken(token(panel.tokens![x] ?? ""))}  ${x}`.trim();
  const [left, down] = [at + 4, box.bottom + 8];
  const turned = { transform: `rotate(-90 ${left} ${down})`, "text-anchor": "end" };
  return words(left, down, text, { ...turned, fill: inks.soft, "font-size": size, "xml:space": "preserve" });
}

/** A token short enough to stand under an axis. */
function clippedToken(text: string): string {
  const letters = [...text];
  return letters.length > 9 ? `${letters.slice(0, 8).join("")}\u2026` : text;
}

/** Of numbered bins, those that begin at a power of ten. */
function powers(edges: number[], low: number, high: number, apart: number): number[] {
  const places: number[] = [];
  for (let i = Math.max(0, Math.ceil(low)); i <= Math.min(edges.length - 1, high); i++) {
    const power = Math.log10(Math.abs(edges[i]));
    const nearest = Math.abs(power - Math.round(power)) < Math.log10(2) / 8;
    if (nearest && (!places.length || i - places.at(-1)! > apart)) places.push(i);
  }
  return places;
}

function powerName(edge: number): string {
  return `${edge < 0 ? "\u2212" : ""}${short(10 ** Math.round(Math.log10(Math.abs(edge))))}`;
}
