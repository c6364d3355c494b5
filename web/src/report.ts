// The report in one file: its words stand in the page already; figures and tables come to life here.

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
  for (const [name, panels] of Object.entries(data.figures)) draw(name, panels);
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

/** Panels are drawn when they come near the screen, or all of them before the page is printed. */
function draw(name: string, panels: Panel[]): void {
  const place = document.querySelector<HTMLElement>(`#figure-${CSS.escape(name)} .panels`);
  if (!place || !panels.length) return;
  place.hidden = false;
  for (const panel of panels) {
    const ground = h("div", { class: "coming" });
    place.append(ground);
    const come = () => {
      watcher.disconnect();
      window.removeEventListener("beforeprint", come);
      ground.replaceWith(card(panel, { height: 270, file: `${name} ${panel.title}`, highest: 440 }).element);
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
