// One bundle, two faces: which one, the page says.

import { fetched, refuse } from "./data/api";
import { takeToken } from "./data/token";
import type { Runs } from "./data/types";
import { Explorer } from "./explorer";
import { startReport } from "./report";
import { h, replace } from "./ui/dom";
import { startTheme } from "./ui/theme";

async function start(): Promise<void> {
  startTheme();
  if (document.body.dataset.page === "report") return startReport();
  takeToken();
  const answer = await fetched("/api/runs");
  if (!answer.ok) return refuse(answer);
  const { runs, overviews, numbers, unreadable } = (await answer.json()) as Runs;
  const ground = document.getElementById("page")!;
  replace(ground);
  new Explorer(runs, overviews, numbers, unreadable).start(ground);
}

start().catch((error: Error) =>
  replace(
    document.getElementById("page") ?? document.body,
    h("p", { class: "empty", role: "alert" }, `The page could not start: ${error.message}`),
  ),
);
