// One bundle, two faces: which one, the page says.

import type { Overview } from "./api";
import { h } from "./dom";
import { Explorer } from "./explorer";
import { startReport } from "./report";
import { startTheme } from "./theme";

async function start(): Promise<void> {
  startTheme();
  if (document.body.dataset.page === "report") return startReport();
  const answer = await fetch("/api/runs");
  const told = (await answer.json()) as { runs: string[]; overviews: Overview[]; error?: string };
  if (!answer.ok) throw new Error(told.error);
  const { runs, overviews } = told;
  new Explorer(runs, overviews).start(document.getElementById("page")!);
}

start().catch((error: Error) => document.body.append(h("p", { class: "empty" }, `The page could not start: ${error.message}`)));
