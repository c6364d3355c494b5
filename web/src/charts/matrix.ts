// Weights of one head, queries down and keys across, as marks: the same on the screen and in a file. Cells are pixels
// of one image, because half a million rectangles would be too many.

import { short, type MatrixPanel, type View } from "../data/panels";
import { token } from "../ui/text";
import type { Inks } from "./inks";
import { title } from "./legend";
import { image, line, rect, textWidth, words, type Box, type Mark, type Picture } from "./marks";
import { weightPlace, weightValue } from "./scales";

/** The tokens in view, from and up to: rows are queries, columns keys. */
export interface Window {
  rows: [number, number];
  columns: [number, number];
}

export interface MatrixFrame {
  box: Box;
  seen: Window;
  cell: [number, number]; // width and height of one
}

const NEAR = 8.4; // pixels of a cell from which every token has its text
const LETTERS = 10; // of a token beside an axis

export function seenBy(panel: MatrixPanel, view: View): Window {
  const all: [number, number] = [0, panel.tokens.length];
  return { rows: view.rows ?? all, columns: view.range ?? all };
}

/** Square, as wide as there is room for. */
export function matrixFrame(panel: MatrixPanel, view: View, width: number, top: number, most = 620): MatrixFrame {
  const seen = seenBy(panel, view);
  const [rows, columns] = [seen.rows[1] - seen.rows[0], seen.columns[1] - seen.columns[0]];
  const left = 24 + LETTERS * 6.4 + 24;
  const side = Math.min(width - left - 12, most);
  const high = Math.max(60, Math.min(side, (side * rows) / Math.max(columns, 1)));
  return {
    box: { left, right: left + side, top, bottom: top + high },
    seen,
    cell: [side / columns, high / rows],
  };
}

/** Pixels below the cells: the texts of keys, and the name of the axis. */
export const BELOW = 8 + LETTERS * 6.4 + 44;

export function matrixMarks(panel: MatrixPanel, frame: MatrixFrame, inks: Inks): Mark[] {
  const { box } = frame;
  return [
    rect(box.left, box.top, box.right - box.left, box.bottom - box.top, { fill: inks.ground, stroke: inks.grid }),
    image(pixels(panel, frame, inks), box, { "data-mark": "weights" }),
    ...fillerMarks(panel, frame, inks),
    ...tokenNames(panel, frame, inks),
    ...axisNames(frame, inks),
  ];
}

/** The cells in view as the address of a picture, a pixel each; what a query cannot see stays clear. */
function pixels(panel: MatrixPanel, { seen }: MatrixFrame, inks: Inks): string {
  const [width, height] = [seen.columns[1] - seen.columns[0], seen.rows[1] - seen.rows[0]];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d")!;
  const data = context.createImageData(width, height);
  for (let i = 0; i < height; i++)
    for (let j = 0; j < width; j++) {
      const [row, column] = [seen.rows[0] + i, seen.columns[0] + j];
      if (column > row) continue;
      const place = weightPlace(panel.weights[row * panel.tokens.length + column], panel.scale);
      data.data.set([...rgb(inks.cell(place, "sequential")), 255], 4 * (i * width + j));
    }
  context.putImageData(data, 0, 0);
  return canvas.toDataURL();
}

function rgb(colour: string): number[] {
  return colour.match(/\d+/g)!.map(Number);
}

/** Edges of the filler, as a query and as a key. */
function fillerMarks(panel: MatrixPanel, { box, seen, cell }: MatrixFrame, inks: Inks): Mark[] {
  if (!panel.filler) return [];
  const edge = { stroke: inks.text, "stroke-dasharray": "3 3", "data-mark": "filler" };
  const [start, stop] = panel.filler;
  const across = [start, stop].map((at) => box.left + (at - seen.columns[0]) * cell[0]);
  const down = [start, stop].map((at) => box.top + (at - seen.rows[0]) * cell[1]);
  const name = { fill: inks.soft, "font-size": 11, "text-anchor": "middle" };
  const [from, to] = [Math.max(box.left, across[0]), Math.min(box.right, across[1])];
  return [
    ...across.filter((x) => x >= box.left && x <= box.right).map((x) => line([x, box.top], [x, box.bottom], edge)),
    ...down.filter((y) => y >= box.top && y <= box.bottom).map((y) => line([box.left, y], [box.right, y], edge)),
    ...(to - from > 24 ? [words((from + to) / 2, box.top - 4, "filler", name)] : []),
  ];
}

function tokenNames(panel: MatrixPanel, { box, seen, cell }: MatrixFrame, inks: Inks): Mark[] {
  const text = { fill: inks.soft, "xml:space": "preserve", "text-anchor": "end" };
  const columns = named(seen.columns, cell[0]).map((at) => {
    const [x, y] = [box.left + (at - seen.columns[0] + 0.5) * cell[0] + 3.5, box.bottom + 6];
    return words(x, y, tokenName(panel, at), { ...text, "font-size": 9.5, transform: `rotate(-90 ${x} ${y})` });
  });
  const rows = named(seen.rows, cell[1]).map((at) => {
    const y = box.top + (at - seen.rows[0] + 0.5) * cell[1] + 3.5;
    return words(box.left - 6, y, tokenName(panel, at), { ...text, "font-size": 9.5 });
  });
  return [...columns, ...rows];
}

/** Tokens that have their text beside the axis: all of them, or as many as there is room for. */
function named([from, to]: [number, number], size: number): number[] {
  const step = Math.max(1, Math.ceil(NEAR / size));
  const places = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) places.push(at);
  return places;
}

export function tokenName(panel: MatrixPanel, at: number): string {
  const letters = [...token(panel.tokens[at])];
  const text = letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}\u2026` : letters.join("");
  return `${text} ${at}`;
}

function axisNames({ box }: MatrixFrame, inks: Inks): Mark[] {
  const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  const text = { fill: inks.soft, "text-anchor": "middle" };
  return [
    words(x, box.bottom + BELOW - 8, "Key: the token that is attended to", text),
    words(12, y, "Query: the token that attends", { ...text, transform: `rotate(-90 12 ${y})` }),
  ];
}

/** The picture that stands alone, with title and scale. */
export function matrixPicture(panel: MatrixPanel, view: View, width: number, inks: Inks): Picture {
  const frame = matrixFrame(panel, view, width, 64);
  const { box } = frame;
  const bar = Array.from({ length: 60 }, (_, k) =>
    rect(box.left + (k / 60) * 200, box.bottom + BELOW + 4, 200 / 60 + 0.5, 10, {
      fill: inks.cell((k + 0.5) / 60, "sequential"),
    }),
  );
  const names = [0, 0.5, 1].map((place) =>
    words(box.left + 200 * place, box.bottom + BELOW + 28, short(weightValue(place, panel.scale)), {
      fill: inks.soft,
      "font-size": 10,
      "text-anchor": "middle",
    }),
  );
  const marks = [title(12, panel.title, inks), words(12, 42, panel.name, { fill: inks.soft }), ...bar, ...names];
  const wide = Math.max(width, 24 + textWidth(panel.title, 15), 24 + textWidth(panel.name, 12));
  return {
    width: Math.ceil(wide),
    height: Math.ceil(box.bottom + BELOW + 40),
    marks: [...marks, ...matrixMarks(panel, frame, inks)],
  };
}
