// From packed profiles to the panel that draws them.

import type { Packed } from "../data/api";
import { TWINS } from "../data/gap";
import type { Line, LinePanel } from "../data/panels";
import type { ProfileHeader, Tokens } from "../data/types";
import type { Pane } from "./pane";

type Profiles = Packed<ProfileHeader>;

export const VIEWS: [string, string][] = [
  ["aligned", "Aligned"],
  ["whole", "Whole prompt"],
  ["difference", "Difference"],
  ["logratio", "Log ratio"],
];
export const BANDS: [string, string][] = [
  ["interval", "95% interval"],
  ["sd", "Standard deviation"],
  ["none", "No band"],
];
const TITLES: Record<string, string> = {
  aligned: "",
  whole: ", whole prompt",
  difference: ", difference to none",
  logratio: ", log ratio to none",
};
const AXES: Record<string, string> = {
  aligned: "Average Attention Weight",
  whole: "Average Attention Weight",
  difference: "Difference to none",
  logratio: "Log of the ratio to none",
};

export function bandOf(pane: Pane): string {
  return pane.state.band || "interval";
}

export function profilePanel(pane: Pane, view: string, profiles: Profiles, tokens: Tokens): LinePanel {
  const names = pane.overview.conditions.map((one) => one.name).filter((name) => profiles.arrays.has(`${name}/mean`));
  const regions = tokens.regions.filter((region) => names.includes(region.condition));
  const main = regions.find((region) => region.condition === pane.condition);
  const [whole, compared] = [view === "whole", view === "difference" || view === "logratio"];
  return {
    kind: "lines",
    title: `${pane.model.label} Layer ${pane.layer} Head ${pane.head}${TITLES[view]}`,
    x: "Token position",
    y: `${AXES[view]}, queries: ${pane.queries}`,
    zero: !compared,
    none: compared ? 0 : null,
    series: [...twinLines(pane, profiles), ...names.map((name) => line(pane, name, profiles))],
    regions: whole ? regions : [],
    cuts: !whole && main?.fixed ? [main.start - 0.5] : [],
    tokens: whole ? (tokens.whole[pane.condition] ?? tokens.aligned) : tokens.aligned,
  };
}

/** The lines of a problem that was measured alone, thin and without bands. */
export function problemLines(pane: Pane, own: Profiles): Line[] {
  return Object.keys(own.header.reach).map((name) => {
    const { low: _, high: __, ...mean } = line(pane, name, own);
    return { ...mean, label: `${mean.label}, this problem`, thin: true };
  });
}

function line(pane: Pane, name: string, { header, arrays }: Profiles): Line {
  const start = pane.first ? 0 : 1;
  const part = (key: string) => Array.from(arrays.get(`${name}/${key}`)!.values.subarray(start, header.reach[name]));
  const mean = part("mean");
  const sd = bandOf(pane) === "sd" ? part("sd") : null;
  return {
    label: pane.label(name),
    condition: name,
    ...pane.look(name),
    x: mean.map((_, i) => start + i),
    y: mean,
    low: sd ? mean.map((value, i) => value - sd[i]) : part("low"),
    high: sd ? mean.map((value, i) => value + sd[i]) : part("high"),
    n: part("n"),
  };
}

/** Untrained twins under the main condition: mean and range over all their heads of the layer. */
function twinLines(pane: Pane, { header, arrays }: Profiles): Line[] {
  if (!arrays.has(`${TWINS}/mean`)) return [];
  const main = pane.overview.main ?? "none";
  const start = pane.first ? 0 : 1;
  const part = (key: string) => Array.from(arrays.get(`${TWINS}/${key}`)!.values.subarray(start, header.reach[main]));
  const y = part("mean");
  const label = `Untrained twins, ${pane.label(main)}`;
  const x = y.map((_, i) => start + i);
  return [{ label, condition: TWINS, style: 6, dash: 7, x, y, low: part("low"), high: part("high") }];
}
