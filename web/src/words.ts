// Tabs to read: what was found, and how it was measured.

import { h, replace } from "./dom";
import { empty, type Pane, type Tab } from "./pane";
import { visible } from "./text";

interface Told {
  model: string;
  label: string;
  headline: { verdict: string; tone: string; facts: [string, string, string][] } | null;
  findings: { name: string; text: string; table: string }[];
}

interface Section {
  title: string;
  paragraphs: string[];
  facts: [string, string][];
  code: string;
}

export class FindingsTab implements Tab {
  readonly element = h("div", { class: "findings" });

  constructor(private readonly pane: Pane) {}

  destroy(): void {}

  async update(): Promise<void> {
    const told = await this.pane.api.json<Told[]>("findings");
    replace(this.element, ...told.map((one) => this.model(one)));
  }

  private model(one: Told): HTMLElement {
    const items = one.findings.map((finding) => {
      const link = h("a", { href: this.pane.api.address(`table/${finding.table}.csv`), download: `${finding.table}.csv` }, `${finding.table}.csv`);
      return h("li", { id: finding.name }, h("bdi", {}, visible(finding.text)), " ", link);
    });
    const facts = one.headline?.facts.map(([name, value, note]) =>
      h("div", { class: "fact" }, h("span", {}, visible(name)), h("b", {}, visible(value)), h("small", {}, visible(note))),
    );
    return h(
      "section",
      { class: "card" },
      h("h3", {}, h("bdi", {}, visible(one.label))),
      one.headline ? h("p", { class: "verdict" }, visible(one.headline.verdict)) : null,
      facts?.length ? h("div", { class: "facts" }, ...facts) : null,
      items.length ? h("ol", {}, ...items) : empty("Nothing to compare: the study has no condition beside none."),
    );
  }
}

export class MethodsTab implements Tab {
  readonly element = h("div", { class: "methods" });

  constructor(private readonly pane: Pane) {}

  destroy(): void {}

  async update(): Promise<void> {
    const { sections, text } = await this.pane.api.json<{ sections: Section[]; text: string }>("methods");
    const copy = h("button", { type: "button", click: () => void navigator.clipboard.writeText(text).then(() => replace(copy, "Copied")) }, "Copy as Markdown");
    const { checked } = this.pane.overview;
    const files = h("p", { class: "checked" }, checked ? visible(checked) : "Checking every file against its checksum \u2026");
    replace(this.element, h("div", { class: "controls" }, copy), files, ...sections.map(section));
  }
}

function section(one: Section): HTMLElement {
  const facts = one.facts.flatMap(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, h("bdi", {}, visible(value, "\n")))]);
  const words = one.paragraphs.map((text) => h("p", {}, h("bdi", {}, visible(text, "\n"))));
  const code = one.code ? h("pre", { class: "study" }, visible(one.code, "\n\t")) : null;
  return h("section", { class: "card" }, h("h3", {}, visible(one.title)), ...words, facts.length ? h("dl", {}, ...facts) : null, code);
}
