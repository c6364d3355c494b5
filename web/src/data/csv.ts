// What is on the screen as a table.

import { finite, type LinePanel, type MatrixPanel, type Panel, type View } from "./panels";

const NUMBER = /^[-+]?[\d.,]+(e[-+]?\d+)?%?$/i;

type Cell = string | number | null | undefined;

export function csv(header: string[], rows: Iterable<Cell[]>): string {
  const lines = [header, ...rows].map((row) => row.map(field).join(","));
  return lines.join("\r\n") + "\r\n";
}

function field(cell: Cell): string {
  if (typeof cell === "number") return Number.isFinite(cell) ? String(cell) : "";
  if (cell === null || cell === undefined) return "";
  return quoted(/^[=+\-@\t\r]/.test(cell) && !NUMBER.test(cell) ? `'${cell}` : cell); // no formula for a spreadsheet
}

function quoted(cell: string): string {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

/** Only lines that are on, and of them only what is in view. */
export function panelCsv(panel: Panel, view: View): string {
  if (panel.kind === "bars") {
    const rows = panel.groups.flatMap((group) =>
      group.bars.map((bar) => [group.label, bar.condition, bar.value, bar.low, bar.high, bar.n]),
    );
    return csv(["group", "condition", "value", "low", "high", "n"], rows);
  }
  if (panel.kind === "matrix") return csv(["query", "query token", "key", "key token", "weight"], cells(panel, view));
  if (panel.kind === "map") {
    const rows = panel.rows.flatMap((row, i) =>
      panel.columns.map((column, j) => [row, column, panel.value[i][j], panel.low[i][j], panel.high[i][j]]),
    );
    return csv([panel.down, panel.across, "value", "low", "high"], rows);
  }
  return csv(["series", "condition", ...axisColumns(panel), "mean", "low", "high", "n"], lineRows(panel, view));
}

/** What is in view of a matrix, without keys that come after their query. */
function* cells({ tokens, weights }: MatrixPanel, { range, rows }: View): Generator<Cell[]> {
  const all: [number, number] = [0, tokens.length];
  const [[top, bottom], [left, right]] = [rows ?? all, range ?? all];
  for (let i = top; i < bottom; i++)
    for (let j = left; j < Math.min(right, i + 1); j++)
      yield [i, tokens[i], j, tokens[j], weights[i * tokens.length + j]];
}

function axisColumns(panel: LinePanel): string[] {
  if (panel.edges) return ["from", "to"];
  return panel.tokens ? ["position", "token"] : [panel.x.toLowerCase()];
}

function* lineRows(panel: LinePanel, { off, range }: View): Generator<Cell[]> {
  for (const line of panel.series) {
    if (off.has(line.label)) continue;
    for (let i = 0; i < line.x.length; i++) {
      const x = line.x[i];
      if (!finite(line.y[i]) || (range && (x < range[0] || x > range[1]))) continue;
      const place = panel.edges
        ? [panel.edges[x], panel.edges[x + 1]]
        : panel.tokens
          ? [line.places?.[i] ?? x, panel.tokens[x] ?? ""]
          : [x];
      yield [line.label, line.condition, ...place, line.y[i], line.low?.[i], line.high?.[i], line.n?.[i]];
    }
  }
}
