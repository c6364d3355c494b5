// A picture as data: marks in pixels. Screen and files are painted from the same marks (paint.ts), and tests read them.

export type Attributes = Record<string, string | number | undefined>;

export interface Mark {
  tag: "image" | "line" | "rect" | "circle" | "path" | "text" | "g" | "svg";
  attributes: Attributes;
  text?: string;
  marks?: Mark[];
}

export interface Picture {
  width: number;
  height: number;
  marks: Mark[];
}

/** The part of a picture that holds the data. */
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export function line(from: [number, number], to: [number, number], attributes: Attributes): Mark {
  const [[x1, y1], [x2, y2]] = [from.map(round), to.map(round)];
  return { tag: "line", attributes: { x1, y1, x2, y2, ...attributes } };
}

export function vertical(x: number, box: Box, attributes: Attributes): Mark {
  return line([x, box.top], [x, box.bottom], attributes);
}

export function horizontal(y: number, box: Box, attributes: Attributes): Mark {
  return line([box.left, y], [box.right, y], attributes);
}

export function rect(x: number, y: number, width: number, height: number, attributes: Attributes): Mark {
  return {
    tag: "rect",
    attributes: { x: round(x), y: round(y), width: round(width), height: round(height), ...attributes },
  };
}

/** A picture in a box, its pixels as squares. */
export function image(href: string, { left, right, top, bottom }: Box, attributes: Attributes): Mark {
  const place = { x: left, y: top, width: round(right - left), height: round(bottom - top) };
  const look = { preserveAspectRatio: "none", style: "image-rendering: pixelated" };
  return { tag: "image", attributes: { href, ...place, ...look, ...attributes } };
}

export function circle(cx: number, cy: number, r: number, attributes: Attributes): Mark {
  return { tag: "circle", attributes: { cx: round(cx), cy: round(cy), r, ...attributes } };
}

export function path(d: string, attributes: Attributes): Mark {
  return { tag: "path", attributes: { d, fill: "none", ...attributes } };
}

export function words(x: number, y: number, text: string, attributes: Attributes): Mark {
  return {
    tag: "text",
    text,
    attributes: { x: round(x), y: round(y), direction: "ltr", "unicode-bidi": "isolate", ...attributes },
  };
}

export function group(marks: Mark[], attributes: Attributes = {}): Mark {
  return { tag: "g", marks, attributes };
}

/** Marks of which nothing is seen outside the box, but for the width of a line on its edge. */
export function clipped(box: Box, marks: Mark[], attributes: Attributes = {}): Mark {
  const [x, y] = [box.left - 1, box.top - 1];
  const [width, height] = [box.right - x + 1, box.bottom - y + 1];
  const place = { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` };
  return { tag: "svg", marks, attributes: { ...place, ...attributes } };
}

/** About how wide a text is, without a browser to ask. */
export function textWidth(text: string, size: number): number {
  let width = 0;
  for (const letter of text) width += letter.codePointAt(0)! > 0x2e80 ? size : 0.6 * size;
  return width;
}

export function round(value: number): number {
  return Math.round(100 * value) / 100;
}
