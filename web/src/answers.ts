// Accuracy under each condition, the problems that changed, and every answer.

import { card, type Card } from "./card";
import { h, keepingFocus, replace, select } from "./dom";
import { empty, Turn, type Pane, type Tab } from "./pane";
import type { BarPanel } from "./panels";
import { table, type Column } from "./table";
import { chance, number, percent, points, visible } from "./text";

export interface Row {
  model: string;
  label: string;
  drawing: string;
  condition: string;
  group: string;
  temperature: number;
  samples: number;
  n: number;
  failed: number;
  accuracy: number | null;
  low: number | null;
  high: number | null;
  tokens: number | null;
  cut_off: number | null;
  unanswered: number | null;
  pairs: number;
  difference: number | null;
  difference_low: number | null;
  difference_high: number | null;
  gained: number;
  lost: number;
  p: number | null;
  adjusted: number | null;
  detectable: number | null;
  verdict: string;
}

/** Verdicts that changed against the first answers without filler: by rounding (none), or under a condition. */
export interface Noise {
  label: string;
  drawing: string;
  condition: string;
  n: number;
  answers: number;
  flips: number;
  share: number | null;
  low: number | null;
  high: number | null;
  texts: number;
  pairs: number;
  difference: number | null;
  difference_low: number | null;
  difference_high: number | null;
  p: number | null;
  adjusted: number | null;
  verdict: string;
}

interface Side { verdict: string; extracted: string; text: string; finish: string; tokens: number; note: string }

export interface Flip {
  id: string;
  sample: number;
  direction: string;
  question: string;
  reference: string;
  before: Side;
  after: Side;
}

interface Answer extends Side { id: string; condition: string; sample: number; question: string; reference: string }

const VERDICTS = ["right", "wrong", "no answer", "cut off", "failed"];

export class AnswersTab implements Tab {
  readonly element = h("div", { class: "answers" });
  private readonly top = h("div", {});
  private readonly changed = h("section", { class: "card" });
  private readonly found = h("section", { class: "card" });
  private drawn: Card[] = [];
  private readonly turn = new Turn();

  constructor(private readonly pane: Pane) {
    this.element.append(this.top, this.changed, this.found);
  }

  destroy(): void {
    this.drawn.forEach((one) => one.destroy());
  }

  async update(): Promise<void> {
    const { pane } = this;
    if (!pane.overview.has.answers) throw new Error("This run asked for no answers.");
    const mine = this.turn.take();
    try {
      const by = pane.address.get("by");
      const { rows, fields, noise } = await pane.api.json<{ rows: Row[]; fields: string[]; noise: Noise[] }>("comparison", { by });
      if (!rows.length) throw new Error("No answer has landed yet.");
      if (mine()) this.compare(rows, fields, by, noise);
    } catch (error) {
      return replace(this.top, empty((error as Error).message));
    }
    if (!pane.begun("answering")) return [this.changed, this.found].forEach((one) => replace(one, empty("No answer of this model has landed yet.")));
    await Promise.all([this.flips(mine), this.search(mine)]);
  }

  private compare(rows: Row[], fields: string[], by: string, noise: Noise[]): void {
    const { pane } = this;
    this.destroy();
    const options: [string, string][] = [["", "all problems together"], ...fields.map((name): [string, string] => [name, visible(name)])];
    const menu = select("Split by", options, by, (name) => pane.address.set({ by: name }), "by");
    const panel = accuracyPanel(rows, (name) => pane.style(name), (name) => pane.label(name));
    const bars = card(panel);
    this.drawn = [bars];
    const shown = h("section", { class: "card" }, h("header", { class: "card-head" }, h("h3", {}, "Every condition against none, on the same problems")), comparisonTable(rows), h("p", { class: "hint" }, NOTE));
    const floor = noise.length ? h("section", { class: "card" }, h("header", { class: "card-head" }, h("h3", {}, "Verdicts that change, beside those that rounding changes")), noiseTable(noise), h("p", { class: "hint" }, NOISE_NOTE)) : null;
    keepingFocus(this.top, () => replace(this.top, h("div", { class: "controls" }, pane.modelMenu(), menu), bars.element, shown, floor));
  }

  private async flips(mine: () => boolean): Promise<void> {
    const { pane } = this;
    if (!pane.fillers.length) return;
    const wanted = pane.address.get("against");
    const against = pane.overview.conditions.some((one) => one.name === wanted && one.name !== pane.condition) ? wanted : "none";
    const names = pane.overview.conditions.filter((one) => one.name !== pane.condition).map((one): [string, string] => [one.name, visible(one.label)]);
    const menus = h("div", { class: "controls" }, pane.conditionMenu(), select("Against", names, against, (name) => pane.address.set({ against: name }), "against"), this.temperatures());
    const head = h("header", { class: "card-head" }, h("h3", {}, "Problems that changed"));
    try {
      const found = await pane.api.json<{ flips: Flip[] }>("flips", { model: pane.model.name, condition: pane.condition, against, temperature: this.temperature });
      if (!mine()) return;
      const body = flipList(found.flips, pane.label(against), pane.label(pane.condition));
      keepingFocus(this.changed, () => replace(this.changed, head, menus, body));
    } catch (error) {
      if (mine()) replace(this.changed, head, menus, empty((error as Error).message));
    }
  }

  /** One of the study's, the first unless another is chosen. */
  private get temperature(): string {
    const known = this.pane.overview.temperatures.map(String);
    const wanted = this.pane.address.get("temperature");
    return known.includes(wanted) ? wanted : known[0];
  }

  private temperatures(): HTMLElement | null {
    const { temperatures } = this.pane.overview;
    if (temperatures.length < 2) return null;
    const options = temperatures.map((one): [string, string] => [String(one), String(one)]);
    return select("Temperature", options, this.temperature, (temperature) => this.pane.address.set({ temperature, start: null }));
  }

  private async search(mine: () => boolean): Promise<void> {
    const { pane } = this;
    const start = Math.max(0, pane.address.number("start", 0));
    const asked = {
      model: pane.model.name, text: pane.address.get("text"), verdict: pane.address.get("verdict"), condition: pane.address.get("only"), start,
      temperature: this.temperature,
    };
    const found = await pane.api.json<{ total: number; start: number; answers: Answer[] }>("answers", asked);
    if (!mine()) return;
    const input = h("input", { type: "search", name: "text", placeholder: "Search questions and answers", value: asked.text, "aria-label": "Search questions and answers" });
    const form = h("form", { class: "controls", submit: (event: Event) => (event.preventDefault(), pane.address.set({ text: input.value, start: null })) });
    const verdicts: [string, string][] = [["", "any verdict"], ...VERDICTS.map((name): [string, string] => [name, name])];
    const conditions: [string, string][] = [["", "any condition"], ...pane.overview.conditions.map((one): [string, string] => [one.name, visible(one.label)])];
    form.append(
      input,
      h("button", { type: "submit" }, "Search"),
      select("Verdict", verdicts, asked.verdict, (verdict) => pane.address.set({ verdict, start: null })),
      select("Under", conditions, asked.condition, (only) => pane.address.set({ only, start: null }), "only"),
    );
    const last = Math.min(found.total, start + found.answers.length);
    const count = h("p", { class: "count", role: "status" }, found.total ? `${start + 1} to ${last} of ${found.total} answers` : "No answer matches.");
    const step = (to: number) => () => pane.address.set({ start: to || null });
    const size = 50;
    const pages = h(
      "div",
      { class: "controls" },
      h("button", { type: "button", disabled: start === 0, click: step(Math.max(0, start - size)) }, "Earlier"),
      h("button", { type: "button", disabled: last >= found.total, click: step(start + size) }, "Later"),
    );
    const list = found.answers.map((answer) => transcript(answer, pane.label(answer.condition)));
    keepingFocus(this.found, () =>
      replace(this.found, h("header", { class: "card-head" }, h("h3", {}, "All answers")), form, count, ...list, found.total > size ? pages : null),
    );
  }
}

const NOTE =
  "Brackets: 95% interval, not adjusted. + and \u2212: problems answered better and worse than under none. p Holm: adjusted over all comparisons of the table. Detectable: points that one such comparison shows with 80% power.";

const NOISE_NOTE =
  "Prompts without filler were answered twice; none: verdicts that differ between the two. Others: verdicts that differ from the first answers. Difference: to rounding, over problems, with its 95% interval. p Holm: adjusted over the rows of a model.";

function accuracyPanel(rows: Row[], style: (name: string) => number, label: (name: string) => string): BarPanel {
  const groups = new Map<string, BarPanel["groups"][0]>();
  const drawings = new Set(rows.map((row) => row.drawing));
  for (const row of rows) {
    const name = [row.label, drawings.size > 1 ? row.drawing : "", row.group].filter(Boolean).join(", ");
    if (!groups.has(name)) groups.set(name, { label: name, bars: [] });
    const scaled = (value: number | null) => (value === null ? null : 100 * value);
    const note = row.pairs ? `${points(row.difference)} points, p Holm ${chance(row.adjusted)}: ${row.verdict}` : "";
    groups.get(name)!.bars.push({
      label: label(row.condition), condition: row.condition, style: style(row.condition), value: scaled(row.accuracy),
      low: scaled(row.low), high: scaled(row.high), n: row.n, note,
    });
  }
  return { kind: "bars", title: "Accuracy", y: "Accuracy, %", groups: [...groups.values()], mark: "bar" };
}

const bounds = (low: string, high: string) => (low === "\u2013" ? "" : ` [${low}, ${high}]`);

export function noiseTable(rows: Noise[]): HTMLElement {
  const several = (key: (row: Noise) => string) => new Set(rows.map(key)).size > 1;
  const columns: Column<Noise>[] = [
    ...(several((row) => row.label) ? [{ name: "model", cell: (row: Noise) => row.label }] : []),
    ...(several((row) => row.drawing) ? [{ name: "drawn", cell: (row: Noise) => row.drawing }] : []),
    { name: "condition", cell: (row) => row.condition },
    { name: "n", cell: (row) => String(row.n), value: (row) => row.n },
    { name: "verdicts", cell: (row) => String(row.answers), value: (row) => row.answers },
    { name: "changed", cell: (row) => String(row.flips), value: (row) => row.flips },
    { name: "changed %", cell: (row) => percent(row.share) + bounds(percent(row.low), percent(row.high)), value: (row) => row.share },
    { name: "texts", cell: (row) => String(row.texts), value: (row) => row.texts },
    { name: "difference, points", cell: (row) => (row.pairs ? points(row.difference) + bounds(points(row.difference_low), points(row.difference_high)) : ""), value: (row) => row.difference },
    { name: "p", cell: (row) => (row.pairs ? chance(row.p) : ""), value: (row) => row.p },
    { name: "p Holm", cell: (row) => (row.pairs ? chance(row.adjusted) : ""), value: (row) => row.adjusted },
    { name: "verdict", cell: (row) => row.verdict },
  ];
  return table(rows, columns, "noise");
}

export function comparisonTable(rows: Row[]): HTMLElement {
  const several = (key: (row: Row) => string) => new Set(rows.map(key)).size > 1;
  const columns: Column<Row>[] = [
    ...(several((row) => row.label) ? [{ name: "model", cell: (row: Row) => row.label }] : []),
    ...(several((row) => row.drawing) ? [{ name: "drawn", cell: (row: Row) => row.drawing }] : []),
    ...(several((row) => row.group) ? [{ name: "group", cell: (row: Row) => row.group }] : []),
    { name: "condition", cell: (row) => row.condition },
    { name: "n", cell: (row) => String(row.n), value: (row) => row.n },
    ...(rows.some((row) => row.failed) ? [{ name: "failed", cell: (row: Row) => String(row.failed), value: (row: Row) => row.failed }] : []),
    { name: "accuracy %", cell: (row) => percent(row.accuracy) + bounds(percent(row.low), percent(row.high)), value: (row) => row.accuracy },
    { name: "difference, points", cell: (row) => (row.pairs ? points(row.difference) + bounds(points(row.difference_low), points(row.difference_high)) : ""), value: (row) => row.difference },
    { name: "+", cell: (row) => (row.pairs ? String(row.gained) : ""), value: (row) => row.gained },
    { name: "\u2212", cell: (row) => (row.pairs ? String(row.lost) : ""), value: (row) => row.lost },
    { name: "p", cell: (row) => (row.pairs ? chance(row.p) : ""), value: (row) => row.p },
    { name: "p Holm", cell: (row) => (row.pairs ? chance(row.adjusted) : ""), value: (row) => row.adjusted },
    { name: "detectable", cell: (row) => (row.pairs ? percent(row.detectable) : ""), value: (row) => row.detectable },
    { name: "tokens", cell: (row) => number(row.tokens), value: (row) => row.tokens },
    { name: "truncated %", cell: (row) => percent(row.cut_off, 0), value: (row) => row.cut_off },
    { name: "no answer %", cell: (row) => percent(row.unanswered, 0), value: (row) => row.unanswered },
    { name: "verdict", cell: (row) => row.verdict },
  ];
  return table(rows, columns, "comparison");
}

const AT_ONCE = 12; // flips shown before one asks for more

export function flipList(flips: Flip[], before: string, after: string): HTMLElement {
  const gained = flips.filter((flip) => flip.direction === "gained").length;
  const list = h("div", { class: "flips" });
  const more = h("button", { type: "button", click: () => grow() });
  const count = h("p", { class: "count" }, `${visible(before)} to ${visible(after)}: ${gained} gained, ${flips.length - gained} lost`);
  let shown = 0;
  const grow = () => {
    const next = flips.slice(shown, shown + AT_ONCE);
    list.append(...next.map((flip) => oneFlip(flip, before, after)));
    shown += next.length;
    more.hidden = shown >= flips.length;
    replace(more, `Show more (${flips.length - shown})`);
  };
  grow();
  return h("div", {}, count, list, more);
}

function oneFlip(flip: Flip, before: string, after: string): HTMLElement {
  const sides = [side(before, flip.before), side(after, flip.after)];
  const title = h("summary", {}, h("span", { class: `badge ${flip.direction}` }, flip.direction), " ", h("bdi", {}, visible(flip.id)));
  const question = h("p", { class: "question" }, h("bdi", {}, visible(flip.question, "\n\t")));
  const reference = h("p", { class: "reference" }, "Reference: ", h("bdi", {}, visible(flip.reference)));
  return h("details", { class: "flip", open: true }, title, question, reference, h("div", { class: "sides" }, ...sides));
}

function side(name: string, one: Side): HTMLElement {
  const head = h("header", {}, h("bdi", {}, visible(name)), " ", badge(one.verdict), " ", h("span", {}, "answer "), h("bdi", { class: "extracted" }, visible(one.extracted || "\u2013")));
  const foot = h("footer", {}, `${one.tokens} tokens${one.finish === "length" ? ", cut off" : ""}`, one.note ? `; ${visible(one.note)}` : "");
  return h("article", {}, head, h("pre", {}, h("bdi", {}, visible(one.text.trim(), "\n\t"))), foot);
}

function badge(verdict: string): HTMLElement {
  return h("span", { class: `badge ${verdict.replaceAll(" ", "-")}` }, verdict);
}

function transcript(answer: Answer, condition: string): HTMLElement {
  const summary = h("summary", {}, badge(answer.verdict), " ", h("bdi", {}, visible(answer.id)), " \u00b7 ", h("bdi", {}, visible(condition)), answer.sample > 1 ? ` \u00b7 sample ${answer.sample}` : "");
  const question = h("p", { class: "question" }, h("bdi", {}, visible(answer.question, "\n\t")));
  return h("details", { class: "flip" }, summary, question, h("p", { class: "reference" }, "Reference: ", h("bdi", {}, visible(answer.reference))), side(condition, answer));
}
