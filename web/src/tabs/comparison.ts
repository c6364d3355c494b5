// Tables of accuracies and of the noise floor, and the bars of the first.

import type { BarGroup, BarPanel, ComparisonRow, NoiseRow } from "../data/types";
import { table, type Column } from "../ui/table";
import { average, chance, percent, points } from "../ui/text";
import type { Pane } from "./pane";

export const NOTE =
  "Brackets: 95% interval, not adjusted. + and \u2212: problems answered better and worse than under none. " +
  "p Holm: adjusted over all comparisons of the table. " +
  "Detectable: percentage points that one such comparison shows with 80% power.";

export const NOISE_NOTE =
  "Prompts without filler were answered twice; none: verdicts that differ between the two. " +
  "Others: verdicts that differ from the first answers. Difference: to rounding, over problems, with its 95% interval. " +
  "p Holm: adjusted over the rows of a model.";

export function accuracyPanel(pane: Pane, rows: ComparisonRow[]): BarPanel {
  const groups = new Map<string, BarGroup>();
  const drawings = new Set(rows.map((row) => row.drawing));
  const scaled = (value: number | null) => (value === null ? null : 100 * value);
  for (const row of rows) {
    const { condition, n } = row;
    const name = [row.label, drawings.size > 1 ? row.drawing : "", row.group].filter(Boolean).join(", ");
    if (!groups.has(name)) groups.set(name, { label: name, bars: [] });
    const [value, low, high] = [row.accuracy, row.low, row.high].map(scaled);
    const note = row.pairs
      ? `${points(row.difference)} percentage points, p Holm ${chance(row.adjusted)}: ${row.verdict}`
      : "";
    groups
      .get(name)!
      .bars.push({ label: row.name, condition, style: pane.look(condition).style, value, low, high, n, note });
  }
  return { kind: "bars", title: "Accuracy", y: "Accuracy, %", groups: [...groups.values()], none: null, mark: "bar" };
}

type Columns<Row> = (Column<Row> | false)[];
const bounds = (low: string, high: string) => (low === "\u2013" ? "" : ` [${low}, ${high}]`);
const shown = <Row>(columns: Columns<Row>) => columns.filter((column) => column !== false);

/** A column that is left out where all rows have the same in it. */
function several<Row>(rows: Row[], name: string, cell: (row: Row) => string): Column<Row> | false {
  return new Set(rows.map(cell)).size > 1 && { name, cell };
}

function counts<Row>(name: string, value: (row: Row) => number): Column<Row> {
  return { name, cell: (row) => String(value(row)), value };
}

interface Compared {
  pairs: number;
  difference: number | null;
  difference_low: number | null;
  difference_high: number | null;
  p: number | null;
  adjusted: number | null;
}

/** Columns that are empty in the row of the baseline. */
function paired<Row extends Compared>(
  name: string,
  value: (row: Row) => number | null,
  cell: (row: Row) => string,
): Column<Row> {
  return { name, cell: (row) => (row.pairs ? cell(row) : ""), value };
}

function difference<Row extends Compared>(): Column<Row> {
  const cell = (row: Row) => points(row.difference) + bounds(points(row.difference_low), points(row.difference_high));
  return paired("difference, percentage points", (row) => row.difference, cell);
}

function chances<Row extends Compared>(): Column<Row>[] {
  return [
    paired(
      "p",
      (row) => row.p,
      (row) => chance(row.p),
    ),
    paired(
      "p Holm",
      (row) => row.adjusted,
      (row) => chance(row.adjusted),
    ),
  ];
}

export function noiseTable(rows: NoiseRow[]): HTMLElement {
  const columns: Columns<NoiseRow> = [
    several(rows, "model", (row) => row.label),
    several(rows, "drawn", (row) => row.drawing),
    { name: "condition", cell: (row) => row.name, key: (row) => row.condition },
    counts("n", (row) => row.n),
    counts("verdicts", (row) => row.answers),
    counts("changed", (row) => row.flips),
    {
      name: "changed %",
      cell: (row) => percent(row.share) + bounds(percent(row.low), percent(row.high)),
      value: (row) => row.share,
    },
    counts("texts", (row) => row.texts),
    difference(),
    ...chances<NoiseRow>(),
    { name: "verdict", cell: (row) => row.verdict },
  ];
  return table(rows, shown(columns), "noise");
}

export function comparisonTable(rows: ComparisonRow[]): HTMLElement {
  const columns: Columns<ComparisonRow> = [
    several(rows, "model", (row) => row.label),
    several(rows, "drawn", (row) => row.drawing),
    several(rows, "group", (row) => row.group),
    { name: "condition", cell: (row) => row.name, key: (row) => row.condition },
    counts("n", (row) => row.n),
    rows.some((row) => row.failed) && counts("failed", (row) => row.failed),
    {
      name: "accuracy %",
      cell: (row) => percent(row.accuracy) + bounds(percent(row.low), percent(row.high)),
      value: (row) => row.accuracy,
    },
    difference(),
    paired(
      "+",
      (row) => row.gained,
      (row) => String(row.gained),
    ),
    paired(
      "\u2212",
      (row) => row.lost,
      (row) => String(row.lost),
    ),
    ...chances<ComparisonRow>(),
    paired(
      "detectable",
      (row) => row.detectable,
      (row) => percent(row.detectable),
    ),
    { name: "tokens", cell: (row) => average(row.tokens), value: (row) => row.tokens },
    { name: "truncated %", cell: (row) => percent(row.cut_off, 0), value: (row) => row.cut_off },
    { name: "no answer %", cell: (row) => percent(row.unanswered, 0), value: (row) => row.unanswered },
    { name: "verdict", cell: (row) => row.verdict },
  ];
  return table(rows, shown(columns), "comparison");
}
