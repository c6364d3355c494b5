// Colours and dashes. Lines are told apart by dashes as well; maps run from blue to red or in one hue.

export type Theme = "light" | "dark";
export type Hues = "diverging" | "sequential";
type Rgb = [number, number, number];

export const LINES: Record<Theme, string[]> = {
  light: ["#0072b2", "#d98200", "#00875f", "#8e5ea2", "#3d9bd9", "#d55e00", "#6b6b6b", "#a6761d"],
  dark: ["#5cb3ea", "#f2ae2e", "#35c79a", "#c09ad0", "#9ad2f7", "#ff8a4d", "#b5b5b5", "#d9b36c"],
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
