// From marks to SVG: on the page, and as a file (SVG, or PNG through the browser).

import { s } from "../ui/dom";
import { visible } from "../ui/text";
import { rect, type Attributes, type Mark, type Picture } from "./marks";

const FONT = "system-ui, 'DejaVu Sans', sans-serif";

export function paint(mark: Mark): SVGElement {
  const inside = mark.text === undefined ? (mark.marks ?? []).map(paint) : [visible(mark.text)];
  return s(mark.tag, mark.attributes, ...inside);
}

/** A picture for the page. */
export function chart({ width, height, marks }: Picture, attributes: Attributes = {}): SVGElement {
  const size = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 12 };
  return s("svg", { class: "chart", "aria-hidden": "true", ...size, ...attributes }, ...marks.map(paint));
}

/** A picture as the text of an SVG file. */
export function svgFile({ width, height, marks }: Picture, ground: string): string {
  const all = [rect(0, 0, width, height, { fill: ground }), ...marks];
  const xmlns = "http://www.w3.org/2000/svg";
  const picture = chart({ width, height, marks: all }, { xmlns, class: undefined, "aria-hidden": undefined });
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}\n`;
}

/** The text of an SVG file as a PNG file, three pixels for one. */
export async function pngFile(svg: string, { width, height }: Picture, scale = 3): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [scale * width, scale * height];
    const context = canvas.getContext("2d")!;
    context.scale(scale, scale);
    context.drawImage(image, 0, 0);
    return await blobOf(canvas);
  } finally {
    URL.revokeObjectURL(address);
  }
}

function blobOf(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((done, fail) => {
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("the browser made no picture"))));
  });
}
