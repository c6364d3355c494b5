// A map of cells as marks: the same on the screen and in a file, which has title and scale besides.

import { short, type MapPanel } from "../data/panels";
import type { Inks } from "./inks";
import { title } from "./legend";
import { circle, rect, textWidth, words, type Mark, type Picture } from "./marks";
import { cellColour, coloursOf, isOpen, named, type Colours } from "./scales";

/** Where cells stand: the corner of the first, and the size of each. */
export interface Grid {
  left: number;
  top: number;
  side: number; // across
  down: number;
}

const NAMES = 38; // pixels below the cells

function hasWords(panel: MapPanel): boolean {
  return panel.rows.some((row) => typeof row === "string");
}

/** The grid that fits into a width, and is not higher than `highest`. */
export function gridOf(panel: MapPanel, width: number, highest: number, top = 0): Grid {
  const left = Math.max(...panel.rows.map((row) => textWidth(String(row), 11))) + 26;
  const most = highest / panel.rows.length;
  const wide = (width - left - 4) / panel.columns.length;
  const down = hasWords(panel) ? 15 : Math.max(Math.min(5, most), Math.min(wide, most, 22));
  return { left, top, down, side: Math.min(wide, 3 * down, 44) };
}

export function gridHeight(panel: MapPanel, grid: Grid): number {
  return grid.top + grid.down * panel.rows.length + NAMES;
}

/** Cells with their colours, a dot on those whose interval reaches no change, and the names of rows and columns. */
export function mapMarks(panel: MapPanel, grid: Grid, inks: Inks): Mark[] {
  const colours = coloursOf(panel);
  const places = panel.rows.flatMap((_, i) => panel.columns.map((__, j): [number, number] => [i, j]));
  const open = places.filter(([i, j]) => isOpen(panel, i, j));
  return [
    ...places.map(([i, j]) => cell(panel, colours, grid, i, j, inks)),
    ...open.map(([i, j]) => cellDot(grid, i, j, inks)),
    ...rowNames(panel, grid, inks),
    ...columnNames(panel, grid, inks),
  ];
}

function gapOf({ side, down }: Grid): number {
  return side > 7 && down > 7 ? 1 : 0;
}

function cell(panel: MapPanel, colours: Colours, grid: Grid, i: number, j: number, inks: Inks): Mark {
  const [x, y, gap] = [grid.left + j * grid.side, grid.top + i * grid.down, gapOf(grid)];
  return rect(x, y, grid.side - gap, grid.down - gap, { fill: cellColour(colours, panel.colour[i][j], inks) });
}

function cellDot(grid: Grid, i: number, j: number, inks: Inks): Mark {
  const gap = gapOf(grid);
  const [x, y] = [grid.left + j * grid.side + (grid.side - gap) / 2, grid.top + i * grid.down + (grid.down - gap) / 2];
  return circle(x, y, Math.min(1.8, grid.down / 6), { fill: inks.soft });
}

function rowNames(panel: MapPanel, { left, top, down }: Grid, inks: Inks): Mark[] {
  const text = { fill: inks.soft, "font-size": 11 };
  const places = hasWords(panel) ? [...panel.rows.keys()] : named(panel.rows.length, down, 13);
  const names = places.map((i) =>
    words(left - 5, top + (i + 0.5) * down + 4, String(panel.rows[i]), { ...text, "text-anchor": "end" }),
  );
  if (hasWords(panel)) return names;
  const middle = top + (down * panel.rows.length) / 2;
  return [
    ...names,
    words(10, middle, panel.down, { ...text, "text-anchor": "middle", transform: `rotate(-90 10 ${middle})` }),
  ];
}

function columnNames(panel: MapPanel, { left, top, side, down }: Grid, inks: Inks): Mark[] {
  const text = { fill: inks.soft, "font-size": 11, "text-anchor": "middle" };
  const below = top + down * panel.rows.length;
  const names = named(panel.columns.length, side, 22).map((j) =>
    words(left + (j + 0.5) * side, below + 14, String(panel.columns[j]), text),
  );
  return [...names, words(left + (side * panel.columns.length) / 2, below + 32, panel.across, text)];
}

/** The frame around a cell. */
export function chosenMark([row, column]: [number, number], { left, top, side, down }: Grid, inks: Inks): Mark {
  const y = Math.max(1, top + row * down - 0.5);
  return rect(left + column * side - 0.5, y, side, down, { fill: "none", stroke: inks.text, "stroke-width": 2 });
}

const PARTS = 60; // of the scale

/** The panel as it stands alone, with title, what the colours show, and their scale. */
export function mapPicture(panel: MapPanel, width: number, inks: Inks): Picture {
  const grid = gridOf(panel, width - 90, 640, 62);
  const right = grid.left + grid.side * panel.columns.length;
  const text = Math.max(textWidth(panel.title, 15), textWidth(panel.name, 12));
  const marks = [
    title(12, panel.title, inks),
    words(12, 44, panel.name, { fill: inks.soft }),
    ...mapMarks(panel, grid, inks),
    ...scaleMarks(panel, right + 20, grid, inks),
  ];
  return { width: Math.ceil(Math.max(right + 90, 24 + text)), height: Math.ceil(gridHeight(panel, grid) + 8), marks };
}

function scaleMarks(panel: MapPanel, x: number, grid: Grid, inks: Inks): Mark[] {
  const colours = coloursOf(panel);
  const tall = grid.down * panel.rows.length;
  const parts = Array.from({ length: PARTS }, (_, k) => {
    const fill = inks.cell(1 - (k + 0.5) / PARTS, colours.hues);
    return rect(x, grid.top + (tall * k) / PARTS, 12, tall / PARTS + 0.5, { fill });
  });
  const names = [0, 0.5, 1].map((place) =>
    words(x + 16, grid.top + (1 - place) * tall + 4, short(colours.value(place)), { fill: inks.soft, "font-size": 10 }),
  );
  return [...parts, ...names];
}
