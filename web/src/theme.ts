// Colours, in light and in dark. Lines are told apart by dashes as well, maps run from blue to red or in one hue.

export type Theme = "light" | "dark";

const LINES: Record<Theme, string[]> = {
  light: ["#0072b2", "#d98200", "#00875f", "#8e5ea2", "#3d9bd9", "#d55e00", "#6b6b6b", "#a6761d"],
  dark: ["#5cb3ea", "#f2ae2e", "#35c79a", "#c09ad0", "#9ad2f7", "#ff8a4d", "#b5b5b5", "#d9b36c"],
};
export const DASHES: number[][] = [[], [6, 2], [8, 3, 2, 3], [2, 3], [12, 4], [4, 4], [10, 3, 2, 3, 2, 3], [1, 2]];

type Rgb = [number, number, number];
const DIVERGING: Record<Theme, Rgb[]> = {
  light: [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [247, 247, 247], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]],
  dark: [[150, 205, 245], [96, 172, 226], [52, 128, 190], [34, 82, 130], [44, 48, 56], [130, 58, 40], [190, 88, 62], [232, 132, 98], [252, 190, 160]],
};
const SEQUENTIAL: Record<Theme, Rgb[]> = {
  light: [[247, 251, 245], [199, 233, 192], [116, 196, 118], [35, 139, 69], [0, 60, 25]],
  dark: [[36, 42, 44], [28, 84, 66], [34, 134, 96], [92, 190, 130], [205, 245, 200]],
};

export function theme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function lineColour(style: number, of: Theme = theme()): string {
  return LINES[of][style % LINES[of].length];
}

export function faded(colour: string, alpha: number): string {
  const value = Number.parseInt(colour.slice(1), 16);
  return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${alpha})`;
}

/** The colour at a place between 0 and 1. */
export function mapColour(place: number, kind: "diverging" | "sequential", of: Theme = theme()): string {
  const stops = (kind === "diverging" ? DIVERGING : SEQUENTIAL)[of];
  const at = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const mixed = stops[low].map((from, i) => Math.round(from + (at - low) * (stops[low + 1][i] - from)));
  return `rgb(${mixed.join(", ")})`;
}

/** A colour of the style sheet, for canvases. */
export function ink(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colours of a page on white paper, for files. */
export const PAPER = { text: "#1b1f24", soft: "#57606a", line: "#d0d7de", ground: "#ffffff", shade: "#8a8f98" };

const followers = new Set<() => void>();

/** Called whenever light and dark change places. Gives what ends it. */
export function onTheme(follow: () => void): () => void {
  followers.add(follow);
  return () => followers.delete(follow);
}

/** For what is not drawn on a canvas: the style sheet knows the lines' colours by number. */
export function lineVariable(style: number): string {
  return `var(--line-${style % LINES.light.length})`;
}

function tell(): void {
  LINES[theme()].forEach((colour, i) => document.documentElement.style.setProperty(`--line-${i}`, colour));
  followers.forEach((follow) => follow());
}

export function startTheme(): void {
  const kept = read();
  if (kept) document.documentElement.dataset.theme = kept;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}

export function switchTheme(): void {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("fillerscope-theme", next);
  } catch {
    // A page from disk may not be allowed to keep anything.
  }
  tell();
}

function read(): string | null {
  try {
    return localStorage.getItem("fillerscope-theme");
  } catch {
    return null;
  }
}
