// One run on the page, and what every tab asks of it.

import type { Api, Condition, Model, Overview } from "./api";
import { h, select } from "./dom";
import type { Address } from "./state";
import { visible } from "./text";

/** A tab of one run: drawn anew whenever the address changes, and taken away when another tab comes. */
export interface Tab {
  element: HTMLElement;
  update: () => Promise<void>;
  destroy: () => void;
}

export class Pane {
  constructor(
    readonly api: Api,
    public overview: Overview,
    readonly address: Address,
  ) {}

  /** The model chosen, where this run has it. */
  get model(): Model {
    const wanted = this.address.get("model");
    return this.overview.models.find((model) => model.name === wanted) ?? this.overview.models[0];
  }

  /** The condition chosen, where this run has it. */
  get condition(): string {
    const wanted = this.address.get("condition");
    const known = this.overview.conditions.some((one) => one.name === wanted && one.name !== "none");
    return known ? wanted : (this.overview.main ?? "none");
  }

  get fillers(): Condition[] {
    return this.overview.conditions.filter((one) => one.name !== "none");
  }

  get queries(): string {
    const wanted = this.address.get("queries");
    return this.overview.queries.includes(wanted) ? wanted : "original";
  }

  get layer(): number {
    return Math.min(Math.max(1, this.address.number("layer", 1)), Math.max(1, this.model.layers));
  }

  get head(): number {
    return Math.min(Math.max(1, this.address.number("head", 1)), Math.max(1, this.model.heads));
  }

  /** Whether anything of a stage is there, for the model chosen. */
  begun(stage: string): boolean {
    return this.overview.progress.stages.some((one) => one.stage === stage && one.model === this.model.name && one.done > 0);
  }

  style(condition: string): number {
    return Math.max(0, this.overview.conditions.findIndex((one) => one.name === condition));
  }

  label(condition: string): string {
    return this.overview.conditions.find((one) => one.name === condition)?.label ?? condition;
  }

  modelMenu(): HTMLElement | null {
    if (this.overview.models.length < 2) return null;
    const options = this.overview.models.map((one): [string, string] => [one.name, visible(one.label)]);
    return select("Model", options, this.model.name, (model) => this.address.set({ model }));
  }

  conditionMenu(label = "Condition"): HTMLElement {
    const options = this.fillers.map((one): [string, string] => [one.name, visible(one.label)]);
    return select(label, options, this.condition, (condition) => this.address.set({ condition }), "condition");
  }

  layerMenu(): HTMLElement {
    const options = Array.from({ length: this.model.layers }, (_, i): [string, string] => [String(i + 1), String(i + 1)]);
    return select("Layer", options, String(this.layer), (layer) => this.address.set({ layer }));
  }
}

/** Says in the place of a tab why there is nothing. */
export function empty(words: string): HTMLElement {
  return h("p", { class: "empty" }, visible(words));
}

/** Keeps only the last of several answers that overtake one another. */
export class Turn {
  private last = 0;

  take(): () => boolean {
    const mine = ++this.last;
    return () => mine === this.last;
  }
}
