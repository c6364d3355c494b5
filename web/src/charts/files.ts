// What is on the screen as a picture that stands alone, on paper.

import type { Panel, View } from "../data/panels";
import { barPicture } from "./bars";
import { PAPER } from "./inks";
import { linePicture } from "./lines";
import { mapPicture } from "./map";
import type { Picture } from "./marks";
import { matrixPicture } from "./matrix";

const [WIDTH, HEIGHT] = [760, 380];

export function paperPicture(panel: Panel, view: View): Picture {
  if (panel.kind === "matrix") return matrixPicture(panel, view, WIDTH, PAPER);
  if (panel.kind === "map") return mapPicture(panel, WIDTH, PAPER);
  const bars = panel.kind === "bars";
  const marks = bars ? barPicture(panel, WIDTH, HEIGHT, PAPER) : linePicture(panel, view, WIDTH, HEIGHT, PAPER);
  return { width: WIDTH, height: HEIGHT, marks };
}
