// Builds the page into the Python package, and notes from which sources, so that a stale bundle is seen without Node.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "src", "fillerscope", "report", "static");

await build({
  entryPoints: { page: join(here, "src", "page.ts"), style: join(here, "src", "style.css") },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
});

const digest = (text) => createHash("sha256").update(text).digest("hex");
const sources = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
  .filter((one) => one.isFile())
  .map((one) => relative(here, join(one.parentPath, one.name)).replaceAll("\\", "/"));
const names = [...sources, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].sort();
const built = ["page.js", "style.css"];
const record = {
  sources: Object.fromEntries(names.map((name) => [name, digest(readFileSync(join(here, name)))])),
  built: Object.fromEntries(built.map((name) => [name, digest(readFileSync(join(out, name)))])),
};
writeFileSync(join(out, "built.json"), JSON.stringify(record, null, 2) + "\n");
