// Colours and dashes. Lines are told apart by dashes as well; maps run from blue to red or in one hue.

export type Theme = "light" | "dark";
export type Hues = "diverging" | "sequential";
type Rgb = [number, number, number];

export const LINES: Record<Theme, string[]> = {
  // As the printed figures have them (figures/looks.py); on dark ground the same hues, lighter.
  light: ["#262626", "#d9570a", "#155fae", "#1f9e83", "#7a1fd0", "#b37e00", "#7a7a7a", "#823217"],
  dark: ["#e8e8e8", "#ff8a4d", "#6fb1f2", "#40bda0", "#b98af0", "#e8b53d", "#a5a5a5", "#d98a6c"],
};
const DASHES: number[][] = [[], [6, 2], [8, 3, 2, 3], [2, 3], [12, 4], [4, 4], [10, 3, 2, 3, 2, 3], [1, 2]];

// prettier-ignore
const STOPS: Record<Hues, Record<Theme, Rgb[]>> = {
  diverging: {
    light: [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [247, 247, 247], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]],
    dark: [[150, 205, 245], [96, 172, 226], [52, 128, 190], [34, 82, 130], [44, 48, 56], [130, 58, 40], [190, 88, 62], [232, 132, 98], [252, 190, 160]],
  },
  sequential: {
    light: [[247, 251, 245], [199, 233, 192], [116, 196, 118], [35, 139, 69], [0, 60, 25]],
    dark: [[36, 42, 44], [28, 84, 66], [34, 134, 96], [92, 190, 130], [205, 245, 200]],
  },
};

/** The dashes of a line as SVG writes them; `scale` makes them shorter in small pictures. */
export function dashes(dash: number, scale = 1): string {
  return DASHES[dash % DASHES.length].map((part) => part * scale).join(" ");
}

/** The colour at a place between 0 and 1. */
export function mapColour(place: number, hues: Hues, theme: Theme): string {
  const stops = STOPS[hues][theme];
  const at = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const mixed = stops[low].map((from, i) => Math.round(from + (at - low) * (stops[low + 1][i] - from)));
  return `rgb(${mixed.join(", ")})`;
}
