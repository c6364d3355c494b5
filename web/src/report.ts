// The report in one file: its words stand in the page already; figures and tables come to life here.

import { withGap } from "./data/gap";
import type { Panel, Report } from "./data/types";
import { comparisonTable, noiseTable } from "./tabs/comparison";
import { flipList } from "./tabs/flips";
import { card } from "./ui/card";
import { h, replace } from "./ui/dom";
import { download } from "./ui/download";
import { switchTheme } from "./ui/theme";

export function startReport(): void {
  document.querySelector("button.theme")?.addEventListener("click", switchTheme);
  const data = JSON.parse(document.getElementById("report-data")!.textContent) as Report;
  const shown = new Map<string, string>();
  for (const [name, panels] of Object.entries(data.figures)) draw(name, once(name, panels, shown));
  const comparison = document.getElementById("comparison-table");
  if (comparison && data.comparison.length) replace(comparison, comparisonTable(data.comparison));
  const noise = document.getElementById("noise-table");
  if (noise && data.noise.length) replace(noise, noiseTable(data.noise));
  data.flips.forEach((one, i) => {
    const place = document.getElementById(`flips-${i}`);
    if (place) replace(place, flipList(one.flips, one.before, one.after));
  });
  document.querySelectorAll<HTMLElement>("[data-file]").forEach(offer);
  document.querySelectorAll<HTMLElement>("[data-copy]").forEach(copies);
  document.body.dataset.ready = "1";
}

/** The panels that no figure before has shown; of the others the figure says where they stand. */
function once(name: string, panels: Panel[], shown: Map<string, string>): Panel[] {
  const fresh = panels.filter((panel) => !shown.has(numbersOf(panel)));
  const before = new Set(panels.filter((one) => !fresh.includes(one)).map((one) => shown.get(numbersOf(one))!));
  fresh.forEach((panel) => shown.set(numbersOf(panel), name));
  const place = document.querySelector(`#figure-${CSS.escape(name)} .panels`);
  for (const other of before) {
    const title = document.querySelector(`#figure-${CSS.escape(other)} > h3`)?.textContent ?? other;
    const link = h("a", { href: `#figure-${other}` }, title);
    place?.after(h("p", { class: "hint" }, "Shown above already, with the same numbers: ", link));
  }
  return fresh;
}

/** What a panel draws, whatever it is called. */
function numbersOf(panel: Panel): string {
  if (panel.kind === "lines")
    return JSON.stringify([panel.view, panel.series.map(({ condition, x, y }) => [condition, x, y])]);
  if (panel.kind === "map") return JSON.stringify([panel.scale, panel.colour, panel.value]);
  return JSON.stringify(
    panel.groups.map((group) => [group.label, group.bars.map((bar) => [bar.condition, bar.value])]),
  );
}

/** Panels are drawn when they come near the screen, or all of them before the page is printed. */
function draw(name: string, panels: Panel[]): void {
  const place = document.querySelector<HTMLElement>(`#figure-${CSS.escape(name)} .panels`);
  if (!place || !panels.length) return;
  place.hidden = false;
  for (const panel of panels) {
    const ground = h("div", { class: "coming" }, `Drawing ${panel.title} \u2026`);
    place.append(ground);
    const come = () => {
      watcher.disconnect();
      window.removeEventListener("beforeprint", come);
      ground.replaceWith(
        card(panel.kind === "lines" ? withGap(panel) : panel, {
          height: 270,
          file: `${name} ${panel.title}`,
          highest: 440,
        }).element,
      );
    };
    const watcher = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && come(), {
      rootMargin: "500px",
    });
    watcher.observe(ground);
    window.addEventListener("beforeprint", come);
  }
}

/** A button that saves a file which lies packed in the page. */
function offer(button: HTMLElement): void {
  const { file, kind } = button.dataset as { file: string; kind: string };
  const save = async () => download(file, await unpacked(file, kind));
  button.addEventListener("click", () => void save());
}

async function unpacked(file: string, kind: string): Promise<Blob> {
  const packed = document.getElementById(`file-${file}`)!.textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Blob([await new Response(plain).arrayBuffer()], { type: kind });
}

/** A button that copies a text of the page. */
function copies(button: HTMLElement): void {
  const text = document.getElementById(button.dataset.copy!)!.textContent;
  button.addEventListener("click", () => void copied(text).then(() => replace(button, "Copied")));
}

async function copied(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelecting(text); // a page from disk may not touch the clipboard by itself
  }
}

function copyBySelecting(text: string): void {
  const field = h("textarea", {}, text);
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
