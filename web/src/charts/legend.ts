// Title and legend of a picture that stands alone. On the page both are part of the card.

import type { Inks } from "./inks";
import { line, rect, textWidth, words, type Mark } from "./marks";
import { dashes } from "./palette";

export interface Entry {
  label: string;
  style: number;
  dash?: number; // a line; without it a box
}

const [SWATCH, ROW] = [34, 18];

export function title(left: number, text: string, inks: Inks): Mark {
  return words(left, 22, text, { "font-size": 14, "font-weight": 600, fill: inks.text });
}

/** Pixels above the data, and the marks of the legend, in as many rows as its labels need. */
export function legend(entries: Entry[], left: number, right: number, inks: Inks): { top: number; marks: Mark[] } {
  let [x, y] = [left, 40];
  const marks = entries.flatMap((entry) => {
    const room = SWATCH + textWidth(entry.label, 12) + 16;
    if (x > left && x + room > right) [x, y] = [left, y + ROW];
    const at = x;
    x += room;
    return [swatch(entry, at, y - 4, inks), words(at + SWATCH, y, entry.label, { fill: inks.text })];
  });
  return { top: y + ROW, marks };
}

function swatch({ style, dash }: Entry, x: number, y: number, inks: Inks): Mark {
  if (dash === undefined) return rect(x + 10, y - 5, 14, 10, { fill: inks.line(style) });
  return line([x, y], [x + 28, y], { stroke: inks.line(style), "stroke-width": 2, "stroke-dasharray": dashes(dash) });
}
