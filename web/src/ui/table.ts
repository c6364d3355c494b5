// Tables that sort by any column and can be saved.

import { csv } from "../data/csv";
import { h } from "./dom";
import { download } from "./download";
import { visible } from "./text";

type Value = number | string | null | undefined;

export interface Column<Row> {
  name: string;
  cell: (row: Row) => string;
  value?: (row: Row) => Value; // the number that it is sorted and saved by
  key?: (row: Row) => string; // the text that it is saved by, where it shows another
}

export function table<Row>(rows: Row[], columns: Column<Row>[], file: string): HTMLElement {
  const body = h("tbody");
  let order: { column: number; down: boolean } | null = null;
  const value = (row: Row, i: number) => (columns[i].value ?? columns[i].cell)(row);
  const heads = columns.map((column, i) =>
    h("th", { scope: "col", "aria-sort": "none" }, h("button", { type: "button", click: () => sort(i) }, column.name)),
  );

  const draw = (shown: Row[]) => {
    body.replaceChildren(
      ...shown.map((row) =>
        h(
          "tr",
          {},
          ...columns.map((column) =>
            h("td", { class: column.value ? "number" : "" }, h("bdi", {}, visible(column.cell(row), "\n"))),
          ),
        ),
      ),
    );
  };
  const sort = (column: number) => {
    order = { column, down: order?.column === column ? !order.down : false };
    const sorted = rows.toSorted((a, b) => compared(value(a, column), value(b, column)));
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", i === column ? (order!.down ? "descending" : "ascending") : "none"),
    );
    draw(order.down ? sorted.toReversed() : sorted);
  };
  draw(rows);
  const save = () =>
    download(
      `${file}.csv`,
      csv(
        columns.map((one) => one.name),
        rows.map((row) => columns.map((column, i) => column.key?.(row) ?? value(row, i))),
      ),
    );
  return h(
    "div",
    { class: "table" },
    h(
      "div",
      { class: "files" },
      h("button", { type: "button", class: "file", "data-kind": "csv", click: save }, "CSV"),
    ),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body)),
  );
}

function compared(a: Value, b: Value): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
