// What was found of each model: a verdict, a few numbers, and the findings with their tables.

import type { Headline, ModelFindings } from "../data/types";
import { h, replace } from "../ui/dom";
import { download } from "../ui/download";
import { visible } from "../ui/text";
import { empty, loading, type Pane, type Tab } from "./pane";

export class FindingsTab implements Tab {
  readonly element = h("div", { class: "findings" }, loading("the verdict"));

  constructor(private readonly pane: Pane) {}

  destroy(): void {}

  async update(): Promise<void> {
    const models = await this.pane.api.json<ModelFindings[]>("findings");
    replace(this.element, ...models.map((one) => this.model(one)));
  }

  /** The file is fetched here: the browser itself would not send the token. */
  private link(file: string): HTMLElement {
    const path = `table/${file}`;
    const save = async (event: Event): Promise<void> => {
      event.preventDefault();
      await this.pane.api.blob(path).then(
        (content) => download(file, content),
        (error: Error) => link.after(" ", h("span", { role: "alert" }, visible(error.message))),
      );
    };
    const link = h("a", { href: this.pane.api.address(path), download: file, click: save }, file);
    return link;
  }

  private model({ label, headline, findings }: ModelFindings): HTMLElement {
    const items = findings.map(({ name, line, text, table }) => {
      const details = h("p", {}, h("bdi", {}, visible(text)), " ", this.link(`${table}.csv`));
      return h("li", { id: name }, h("details", {}, h("summary", {}, h("bdi", {}, visible(line))), details));
    });
    return h(
      "section",
      { class: "card" },
      h("h3", {}, h("bdi", {}, visible(label))),
      h("p", { class: "verdict" }, visible(headline.subject)),
      h("ul", { class: "verdict" }, ...headline.lines.map((line) => h("li", {}, visible(line)))),
      facts(headline),
      ...headline.left_out.map((reason) => h("p", { class: "hint" }, visible(reason))),
      items.length
        ? h("details", { open: true }, h("summary", {}, `All ${items.length} findings`), h("ol", {}, ...items))
        : empty("Nothing to compare: the study has no condition beside none."),
    );
  }
}

function facts({ facts }: Headline): HTMLElement | null {
  const tiles = facts.map(([name, value, note]) =>
    h(
      "div",
      { class: "fact" },
      h("span", {}, visible(name)),
      h("b", {}, visible(value)),
      h("small", {}, visible(note)),
    ),
  );
  return tiles.length ? h("div", { class: "facts" }, ...tiles) : null;
}
