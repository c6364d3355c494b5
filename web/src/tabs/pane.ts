// One run on the page, and what every tab asks of it.

import type { Address } from "../data/address";
import type { Api } from "../data/api";
import type { State } from "../data/state";
import type { Condition, Model, RunOverview } from "../data/types";
import { h, select } from "../ui/dom";
import { visible } from "../ui/text";

/** A tab of one run: drawn anew whenever the address changes, and taken away when another tab comes. */
export interface Tab {
  element: HTMLElement;
  update: () => Promise<void>;
  destroy: () => void;
  colours?: SharedColours; // of a map that stands beside one of another run
}

/** How far the colours of a map reach, so that two runs side by side can have the same. */
export interface SharedColours {
  own: () => { key: string; reach: number } | null; // two maps with one key show the same quantity
  share: (reach: number | null) => void;
}

export class Pane {
  constructor(
    readonly api: Api,
    public overview: RunOverview,
    private readonly address: Address,
  ) {}

  get state(): State {
    return this.address.state;
  }

  /** Goes somewhere else; `tell` is false where the page shows it already. */
  go(changes: Partial<State>, tell = true): void {
    this.address.set(changes, tell);
  }

  /** The model chosen, where this run has it. */
  get model(): Model {
    return this.overview.models.find((model) => model.name === this.state.model) ?? this.overview.models[0];
  }

  /** The condition chosen, where this run has it. */
  get condition(): string {
    const known = this.fillers.some((one) => one.name === this.state.condition);
    return known ? this.state.condition : (this.overview.main ?? "none");
  }

  get fillers(): Condition[] {
    return this.overview.conditions.filter((one) => one.name !== "none");
  }

  get queries(): string {
    return this.overview.queries.includes(this.state.queries) ? this.state.queries : "original";
  }

  get layer(): number {
    return within(this.state.layer, this.model.layers);
  }

  get head(): number {
    return within(this.state.head, this.model.heads);
  }

  /** Whether profiles begin with the first token, which takes much of all attention. */
  get first(): boolean {
    return this.state.first ?? !this.overview.skip_first;
  }

  /** Whether anything of a stage is stored, for the model chosen. */
  begun(stage: string): boolean {
    const { stages } = this.overview.progress;
    return stages.some((one) => one.stage === stage && one.model === this.model.name && one.done > 0);
  }

  /** The colour and the dashes of a condition, by number. */
  look(condition: string): { style: number; dash: number } {
    const { style, dash } = this.overview.conditions.find((one) => one.name === condition) ?? { style: 0, dash: 0 };
    return { style, dash };
  }

  label(condition: string): string {
    return this.overview.conditions.find((one) => one.name === condition)?.label ?? condition;
  }

  modelMenu(): HTMLElement | null {
    if (this.overview.models.length < 2) return null;
    const options = this.overview.models.map((one): [string, string] => [one.name, visible(one.label)]);
    return select("Model", options, this.model.name, (model) => this.go({ model }));
  }

  conditionMenu(): HTMLElement {
    return select("Condition", labelled(this.fillers), this.condition, (condition) => this.go({ condition }));
  }

  layerMenu(): HTMLElement {
    return select("Layer", upTo(this.model.layers), String(this.layer), (layer) => this.go({ layer: Number(layer) }));
  }

  headMenu(): HTMLElement {
    return select("Head", upTo(this.model.heads), String(this.head), (head) => this.go({ head: Number(head) }));
  }
}

function upTo(most: number): [string, string][] {
  return Array.from({ length: most }, (_, i) => [String(i + 1), String(i + 1)]);
}

function within(chosen: number | null, most: number): number {
  return Math.min(Math.max(1, chosen ?? 1), Math.max(1, most));
}

/** Conditions as a menu shows them. */
export function labelled(conditions: Condition[]): [string, string][] {
  return conditions.map((one) => [one.name, visible(one.label)]);
}

/** Says in the place of a tab why there is nothing. */
export function empty(text: string): HTMLElement {
  return h("p", { class: "empty" }, visible(text));
}

/** Stands in the place of something until it is there, and says what that is. */
export function loading(what: string): HTMLElement {
  return h("p", { class: "loading", role: "status" }, `Loading ${what} \u2026`);
}

/** Keeps only the last of several answers that overtake one another. */
export class Turn {
  private last = 0;

  take(): () => boolean {
    const mine = ++this.last;
    return () => mine === this.last;
  }
}
