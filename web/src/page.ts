// One bundle, two faces: which one, the page says.

import { refuse } from "./data/api";
import type { Runs } from "./data/types";
import { Explorer } from "./explorer";
import { startReport } from "./report";
import { h } from "./ui/dom";
import { startTheme } from "./ui/theme";

async function start(): Promise<void> {
  startTheme();
  if (document.body.dataset.page === "report") return startReport();
  const answer = await fetch("/api/runs");
  if (!answer.ok) return refuse(answer);
  const { runs, overviews } = (await answer.json()) as Runs;
  new Explorer(runs, overviews).start(document.getElementById("page")!);
}

start().catch((error: Error) =>
  document.body.append(h("p", { class: "empty" }, `The page could not start: ${error.message}`)),
);
