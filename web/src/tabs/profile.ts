// One head's profile under every condition, and one problem beside the mean.

import { LineChart } from "../charts/linechart";
import type { Packed } from "../data/api";
import { withGap } from "../data/gap";
import type { LinePanel } from "../data/panels";
import type { ProfileHeader, Ready, Tokens } from "../data/types";
import { head, legend, type CardOptions } from "../ui/card";
import { choice, h, keepingFocus, replace, select, toggle } from "../ui/dom";
import { visible } from "../ui/text";
import { conditionsOff, labelsOff } from "./layers";
import { loading, Turn, type Pane } from "./pane";
import { problemMenu } from "./problemmenu";
import { BANDS, bandOf, problemLines, profilePanel, VIEWS } from "./profilepanel";

/** The view chosen; without filler there is only one. */
export function viewOf(pane: Pane): string {
  const { view } = pane.state;
  return VIEWS.some(([name]) => name === view) && pane.fillers.length ? view : "aligned";
}

const HINT = "Drag to zoom, double-click for all. Arrow keys read values, + and \u2212 zoom.";

export class Profile {
  readonly element = h("section", { class: "card profile" }, loading("the profile of one head"));
  private readonly note = h("p", { class: "note", role: "status" });
  private chart: LineChart | null = null;
  private readonly turn = new Turn();
  private shown: { profiles: Packed<ProfileHeader>; key: string } | null = null;
  private reason = ""; // why no problem can be measured again here

  constructor(private readonly pane: Pane) {}

  destroy(): void {
    this.chart?.destroy();
  }

  async update(tokens: Tokens, mine: () => boolean): Promise<void> {
    const { pane } = this;
    const profiles = await pane.api.packed<ProfileHeader>("head", this.asked);
    this.reason = (await pane.api.json<Ready>("ready", { model: pane.model.name })).reason;
    if (!mine()) return;
    const { condition, off, band, first, x, problem } = pane.state;
    const key = JSON.stringify([condition, off, band, first, x, problem]);
    if (this.shown?.profiles === profiles && this.shown.key === key) return;
    const panel = profilePanel(pane, viewOf(pane), profiles, tokens);
    this.show(panel);
    this.shown = { profiles, key };
    await this.addProblem(panel, this.turn.take());
  }

  private get asked(): Record<string, string | number> {
    const { model, layer, head, queries } = this.pane;
    return { model: model.name, layer, head, queries, view: viewOf(this.pane) };
  }

  private show(whole: LinePanel): void {
    const panel = withGap(whole, this.pane.condition);
    const options = this.options(panel);
    this.chart?.destroy();
    const chart = (this.chart = new LineChart(panel, options));
    keepingFocus(this.element, () =>
      replace(
        this.element,
        head(panel, () => chart.view),
        h("div", { class: "controls" }, ...this.menus()),
        legend(panel, options, chart),
        chart.element,
        h("p", { class: "hint" }, HINT),
        this.note,
      ),
    );
  }

  private options(panel: LinePanel): CardOptions {
    const { pane } = this;
    return {
      height: 330,
      band: bandOf(pane) !== "none",
      off: labelsOff(panel, pane.state.off),
      range: pane.state.x,
      zoomed: (x) => {
        pane.go({ x }, false);
        this.shown = null;
      },
      switched: (off) => pane.go({ off: conditionsOff(panel, off) }),
    };
  }

  private menus(): HTMLElement[] {
    const { pane } = this;
    return [
      choice("View", pane.fillers.length ? VIEWS : VIEWS.slice(0, 1), viewOf(pane), (view) =>
        pane.go({ view, x: null }),
      ),
      select("Band", BANDS, bandOf(pane), (band) => pane.go({ band })),
      toggle("First token", pane.first, (first) => pane.go({ first })),
      this.problemMenu(),
    ];
  }

  private problemMenu(): HTMLElement {
    return problemMenu(this.pane, this.pane.state.problem, [["", "mean only"]], Boolean(this.reason));
  }

  /** One problem is measured again, which takes a moment, and may not be possible here. */
  private async addProblem(panel: LinePanel, mine: () => boolean): Promise<void> {
    const { pane } = this;
    const { problem } = pane.state;
    replace(this.note, this.reason ? `One problem's own profile cannot be shown here: ${visible(this.reason)}` : "");
    if (!problem || this.reason) return;
    replace(this.note, "Measuring this problem again with the model \u2026");
    try {
      const own = await pane.api.measured<ProfileHeader>("problem", { ...this.asked, problem });
      if (!mine()) return;
      const tokens = own.header.tokens?.[viewOf(pane) === "whole" ? pane.condition : "none"] ?? panel.tokens;
      this.show({ ...panel, tokens, series: [...panel.series, ...problemLines(pane, own)] });
      replace(this.note, visible(own.header.note ?? ""));
    } catch (error) {
      if (mine())
        replace(this.note, `This problem's own profile cannot be shown: ${visible((error as Error).message)}`);
    }
  }
}
