// What a picture is drawn with: the colours of the style sheet on the screen, fixed ones in files.

import { LINES, mapColour, type Hues, type Theme } from "./palette";

export interface Inks {
  text: string;
  soft: string;
  grid: string;
  ground: string;
  shade: string;
  missing: string;
  line: (style: number) => string;
  cell: (place: number, hues: Hues) => string;
}

/** A file is on white paper, whatever the theme of the page. */
export const PAPER: Inks = {
  text: "#1b1f24",
  soft: "#57606a",
  grid: "#d0d7de",
  ground: "#ffffff",
  shade: "#8a8f98",
  missing: "#d8d8d8",
  line: (style) => LINES.light[style % LINES.light.length],
  cell: (place, hues) => mapColour(place, hues, "light"),
};

/** The colours of the style sheet follow the theme by themselves; cells of maps are drawn again. */
export function screenInks(theme: Theme): Inks {
  return {
    text: "var(--text)",
    soft: "var(--soft)",
    grid: "var(--line)",
    ground: "var(--card)",
    shade: "var(--shade)",
    missing: "var(--missing)",
    line: lineVariable,
    cell: (place, hues) => mapColour(place, hues, theme),
  };
}

/** The style sheet knows the lines' colours by number. */
export function lineVariable(style: number): string {
  return `var(--line-${style % LINES.light.length})`;
}
