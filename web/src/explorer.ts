// The local page: one run, or two side by side, in tabs. A run in progress fills as its shards land.

import { Address } from "./data/address";
import { Api, fetched } from "./data/api";
import { parse, type State } from "./data/state";
import type { RunOverview } from "./data/types";
import { AnswersTab } from "./tabs/answers";
import { AttentionTab } from "./tabs/attention";
import { FindingsTab } from "./tabs/findings";
import { ActivationsTab, AffineTab } from "./tabs/layers";
import { MethodsTab } from "./tabs/methods";
import { OneTextTab } from "./tabs/onetext";
import { empty, Pane, type Tab } from "./tabs/pane";
import { h, replace } from "./ui/dom";
import { visible } from "./ui/text";
import { switchTheme } from "./ui/theme";

const TABS: Record<string, [string, (pane: Pane) => Tab]> = {
  findings: ["Verdict", (pane) => new FindingsTab(pane)],
  attention: ["Attention", (pane) => new AttentionTab(pane)],
  text: ["One text", (pane) => new OneTextTab(pane)],
  answers: ["Answers", (pane) => new AnswersTab(pane)],
  activations: ["Activations", (pane) => new ActivationsTab(pane)],
  affine: ["Affine", (pane) => new AffineTab(pane)],
  methods: ["Methods", (pane) => new MethodsTab(pane)],
};
const EVERY = 1500; // milliseconds between looks at a run in progress
const SELDOM = 5000; // and at one that is finished and checked: its files may still be damaged, or be others

/** Whether an address without a tab says what to look at in heads: such addresses were written by earlier versions. */
function namesHead({ layer, head, metric, queries, view, problem, x, first }: State): boolean {
  return [layer, head, x, first].some((one) => one !== null) || Boolean(metric || queries || view || problem);
}

function alarmOf(text: string): HTMLElement {
  return h("p", { role: "alert", class: "damaged" }, visible(text));
}

export class Explorer {
  private readonly address = new Address();
  private readonly main = h("main", { id: "main" });
  private readonly nav = h("nav", { class: "tabs", role: "tablist", "aria-label": "What to look at" });
  private readonly bar = h("div", { class: "live" });
  private panes: Pane[] = [];
  private tabs: Tab[] = [];
  private shown = "";
  private readonly apis: Api[];

  constructor(
    private readonly runs: string[],
    private readonly overviews: RunOverview[],
    numbers: number[],
    private readonly unreadable: string[],
  ) {
    this.apis = numbers.map((number) => new Api(number));
  }

  start(ground: HTMLElement): void {
    const home = (event: Event) => (event.preventDefault(), this.address.set(parse("")));
    const brand = h("a", { class: "brand", href: "#", click: home }, "fillerscope");
    const theme = h(
      "button",
      { type: "button", class: "theme", title: "Light or dark", "aria-label": "Light or dark", click: switchTheme },
      "\u25d0",
    );
    ground.append(h("header", { class: "top" }, brand, this.runMenu(), theme), this.bar, this.nav, this.main);
    this.address.follow(() => void this.update());
    void this.update();
    this.lookAgain();
  }

  private lookAgain(): void {
    const isSettled = this.overviews.every((one) => one.progress.finished && one.checked);
    setTimeout(() => void this.look(), isSettled ? SELDOM : EVERY);
  }

  /** Which runs stand on the page. */
  private runMenu(): HTMLElement {
    if (this.runs.length < 2) return h("span", { class: "run-name" }, h("bdi", {}, visible(this.runs[0])));
    const chosen = () => this.chosen();
    const boxes = this.runs.map((name, i) => {
      const box = h("input", { type: "checkbox", name: `run-${i}` });
      box.checked = chosen().includes(i);
      box.addEventListener("change", () => {
        const next = box.checked ? [...chosen(), i].slice(-2) : chosen().filter((one) => one !== i);
        if (!next.length) box.checked = true;
        else this.address.set({ runs: next.map(String) });
      });
      return h("label", { class: "control check" }, box, h("bdi", {}, visible(name)));
    });
    const menu = h("div", { class: "runs", role: "group", "aria-label": "Runs, two at most" }, ...boxes);
    this.address.follow(() => menu.querySelectorAll("input").forEach((box, i) => (box.checked = chosen().includes(i))));
    return menu;
  }

  private chosen(): number[] {
    const asked = this.address.state.runs.map(Number).filter((i) => i in this.runs);
    return (asked.length ? asked : [...this.runs.keys()]).slice(0, 2);
  }

  private get tab(): string {
    const wanted = this.address.state.tab;
    if (Object.hasOwn(TABS, wanted)) return wanted;
    return namesHead(this.address.state) ? "attention" : Object.keys(TABS)[0];
  }

  private async update(): Promise<void> {
    const key = `${this.tab} ${this.chosen().join()}`;
    if (key !== this.shown) this.build(key);
    this.drawProgress();
    this.main.classList.add("busy");
    await Promise.all(this.tabs.map((tab) => tab.update().catch((error: Error) => this.say(tab, error.message))));
    this.shareColours();
    this.main.classList.remove("busy");
    document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  }

  /** Maps of two runs that show the same quantity have the same colours for it. */
  private shareColours(): void {
    const all = this.tabs.map((tab) => tab.colours?.own() ?? null);
    const alike = all.length > 1 && all.every((one) => one !== null && one.key === all[0]?.key);
    const most = alike ? Math.max(...all.map((one) => one!.reach)) : null;
    this.tabs.forEach((tab) => tab.colours?.share(most));
  }

  /** In the place of a tab, which is built anew when there is something to show. */
  private say(tab: Tab, reason: string): void {
    replace(tab.element, empty(reason));
    this.shown = "";
  }

  /** Another tab, or other runs. */
  private build(key: string): void {
    this.tabs.forEach((tab) => tab.destroy());
    const chosen = this.chosen();
    this.panes = chosen.map((run) => new Pane(this.apis[run], this.overviews[run], this.address));
    this.tabs = this.panes.map((pane) => TABS[this.tab][1](pane));
    const columns = this.tabs.map((tab, i) => {
      const title = chosen.length > 1 ? h("h2", {}, h("bdi", {}, visible(this.runs[chosen[i]]))) : null;
      return h("section", { class: "pane", "data-run": chosen[i] }, title, tab.element);
    });
    this.main.classList.toggle("two", chosen.length > 1);
    replace(this.main, ...columns);
    this.drawNav();
    this.shown = key;
  }

  private drawNav(): void {
    const buttons = Object.entries(TABS).map(([name, [text]]) => {
      const on = name === this.tab;
      return h(
        "button",
        {
          type: "button",
          role: "tab",
          "data-tab": name,
          "aria-selected": String(on),
          tabindex: on ? 0 : -1,
          click: () => this.address.set({ tab: name }),
        },
        text,
      );
    });
    const held = this.nav.contains(document.activeElement);
    replace(this.nav, ...buttons);
    const chosen = this.nav.querySelector<HTMLElement>('[aria-selected="true"]');
    if (held) chosen?.focus();
    chosen?.scrollIntoView({ block: "nearest", inline: "center" });
    this.nav.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const names = Object.keys(TABS);
      this.address.set({ tab: names[(names.indexOf(this.tab) + step + names.length) % names.length] });
    };
  }

  private drawProgress(): void {
    const lines = this.chosen().flatMap((run) => {
      const { progress, checked, damaged } = this.overviews[run];
      const alarm = damaged ? [alarmOf(`${this.runs[run]}: ${checked}`)] : [];
      return progress.finished ? alarm : [...alarm, this.progressOf(run)];
    });
    replace(this.bar, ...this.unreadable.map(alarmOf), ...lines);
  }

  private progressOf(run: number): HTMLElement {
    const { progress } = this.overviews[run];
    const ago = Math.max(0, Math.round(Date.now() / 1000 - progress.landed));
    const some = progress.stages.some((one) => one.done > 0);
    const stages = progress.stages.map((one) => {
      const bar = one.total ? h("progress", { max: one.total, value: one.done }) : null;
      const of = one.total === null ? "" : ` of ${one.total}`;
      return h(
        "span",
        { class: "stage" },
        `${one.stage} `,
        h("bdi", {}, visible(one.model)),
        ` ${one.done}${of} problems `,
        bar,
      );
    });
    const name = h("b", {}, h("bdi", {}, visible(this.runs[run])), " is in progress. ");
    return h(
      "p",
      { role: "status", "data-run": run },
      name,
      ...stages,
      some
        ? ` Numbers are of what is there; the last came ${ago} s ago.`
        : " Problems are kept in groups; the first group has not landed yet.",
    );
  }

  /** Has anything landed, or is anything no longer as it was? */
  private async look(): Promise<void> {
    for (const [run, before] of this.overviews.entries()) {
      try {
        const answer = await fetched(`/api/${this.apis[run].run}/overview`);
        if (!answer.ok) continue;
        const next = (await answer.json()) as RunOverview;
        this.overviews[run] = next;
        if (next.version !== before.version || next.checked !== before.checked) {
          this.apis[run].forget();
          this.panes.filter((pane) => pane.api === this.apis[run]).forEach((pane) => (pane.overview = next));
          await this.update();
        } else this.drawProgress();
      } catch {
        // The server has gone, or is busy: the next look may find it.
      }
    }
    this.lookAgain();
  }
}
