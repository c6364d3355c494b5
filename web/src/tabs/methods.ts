// How the run was made, section by section.

import type { Methods, Section } from "../data/types";
import { h, replace } from "../ui/dom";
import { visible } from "../ui/text";
import { loading, type Pane, type Tab } from "./pane";

export class MethodsTab implements Tab {
  readonly element = h("div", { class: "methods" }, loading("how the run was made"));

  constructor(private readonly pane: Pane) {}

  destroy(): void {}

  async update(): Promise<void> {
    const { sections, text } = await this.pane.api.json<Methods>("methods");
    const done = () => replace(copy, "Copied");
    const copy = h(
      "button",
      { type: "button", click: () => void navigator.clipboard.writeText(text).then(done) },
      "Copy as Markdown",
    );
    const checked = this.pane.overview.checked || "Checking every file against its checksum \u2026";
    const files = h("p", { class: "checked" }, visible(checked));
    replace(this.element, h("div", { class: "controls" }, copy), files, ...sections.map(section));
  }
}

function section({ title, paragraphs, facts, code }: Section): HTMLElement {
  const text = (value: string) => h("bdi", {}, visible(value, "\n"));
  const entries = facts.flatMap(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, text(value))]);
  return h(
    "section",
    { class: "card" },
    h("h3", {}, visible(title)),
    ...paragraphs.map((paragraph) => h("p", {}, text(paragraph))),
    entries.length ? h("dl", {}, ...entries) : null,
    code ? h("pre", { class: "study" }, visible(code, "\n\t")) : null,
  );
}
