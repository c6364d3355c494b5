"""What each command does from end to end: measure, draw, then show to people or to programs."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.all import findings_of
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.flips import flips
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.integrity import faults as faults_of
from fillerscope.analysis.mechanism import mechanism_rows
from fillerscope.analysis.noise import noise_floor
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.run import ANSWER, Run, open_run
from fillerscope.cli import tables
from fillerscope.errors import FigureError, PromptError
from fillerscope.figures.registry import asked, check, draw_and_save, names_for
from fillerscope.files import disk_errors
from fillerscope.progress import TerminalProgress
from fillerscope.store.schema import MANIFEST
from fillerscope.study.study import QUERIES, Study

TOP = 10


def measure(study: Study, out: Path | None, quiet: bool, accept_licence: bool) -> Run:
    check(study)
    with TerminalProgress(quiet) as reporter:
        from fillerscope.api import run

        return run(study, out, reporter, accept_licence)


def measure_and_show(
    study: Study, out: Path | None, json: bool, accept_licence: bool = False, report: bool = False
) -> None:
    """Run a study; then its figures, the ranked heads of each model, and what it says; with its report if asked."""
    run = measure(study, out, json, accept_licence)
    drawn, missed = _draw(run, names_for(run), {}, None, json)
    compared = compare(run) if run.has_answers else None
    told = {model: findings_of(run, model, compared) for model in run.models}
    written = _fresh_report(run, json) if report else None
    if json:
        rows = None if compared is None else [row.record() for row in compared]
        file = None if written is None else str(written)
        tables.print_json(_summary(run, drawn, told) | {"comparison": rows, "not_drawn": missed, "report": file})
        return
    for model in run.models:
        if run.fillers and run.has_attention:
            tables.heads(head_table(run, run.main, model=model), "drop", TOP)
    if compared is not None:
        tables.comparison(compared)
    for model in run.models:
        tables.lines(["", f"What {run.label(model)} shows:"])
        tables.findings(told[model])
        _show_failures(run, model)
    if not run.fillers:
        tables.lines(["Nothing to compare: the study has no condition with filler, such as mless."])
    figures = f"Figures: {run.path / 'figures'} ({', '.join(drawn) or 'none'})"
    me = "fillerscope" if shutil.which("fillerscope") else shlex.quote(sys.argv[0])
    folder = shlex.quote(str(run.path))
    look = [f"Report:  {written or f'{me} report {folder}'}", f"Explore: {me} view {folder}"]
    tables.lines(["", f"Run:     {run.path}", figures, *look])


def measure_and_draw(
    study: Study, out: Path | None, queries: str, strict: bool, json: bool, accept_licence: bool
) -> None:
    """Run a ready study and draw the figure that it is for."""
    known = (*QUERIES, ANSWER) if study.probes.answering else QUERIES
    if queries and queries not in known:
        raise FigureError(f"--queries takes {', '.join(known)}, not {queries!r}")
    run = measure(study, out, json, accept_licence)
    changes: dict[str, Any] = {"queries": queries, "strict": strict or None}
    spec = study.figures[0]
    changes |= {
        "layers": spec.layers,
        "heads": spec.heads,
        "skip_first": spec.skip_first,
        "y_max": spec.y_max,
    }
    _report_figures(run, *_draw(run, [spec.name], changes, None, json, strict=True), json)


def draw_figures(path: Path, names: list[str], changes: dict[str, Any], out: Path | None, json: bool) -> None:
    """What is asked for must be drawn; where nothing particular is, what the run does not allow is left out."""
    if changes.get("band") not in ("interval", "sd"):
        raise FigureError(f"--band takes interval or sd, not {changes['band']!r}")
    run = open_run(path)
    run.needed_fillers()
    strict = bool(names) or any(changes[key] for key in ("models", "conditions", "layers", "heads", "queries"))
    drawn, missed = _draw(run, names or names_for(run), changes, out, json, strict)
    if missed and not drawn:
        raise FigureError(f"no figure was drawn; {next(iter(missed.values()))}")
    _report_figures(run, drawn, missed, json)


def show_mechanism(path: Path, condition: str | None, model: str | None, json: bool) -> None:
    """What a run says of the mechanism, and by layer."""
    run = open_run(path)
    name = run.condition(condition).name if condition else run.main
    rows = mechanism_rows(run, name, model)
    told = mechanism_findings(run, name, model) + control_findings(run, name, model)
    if json:
        tables.print_json({
            "run": str(path), "model": run.model(model), "condition": name,
            "findings": [finding.record() for finding in told], "layers": rows,
        })  # fmt: skip
        return
    if rows:
        tables.layers(f"{run.label(model)}, {name} against none, by layer", rows)
    tables.findings(told)


def show_comparison(path: Path, models: list[str], by: str | None, json: bool) -> None:
    run = open_run(path)
    rows = compare(run, models, by)
    whole = rows if by is None else compare(run, models)
    floors = {model: noise_floor(run, model) for model in models or run.models}
    told = {model: answer_findings(run, model, whole, floor) for model, floor in floors.items()}
    if json:
        tables.print_json({
            "run": str(path), "rows": [row.record() for row in rows],
            "findings": {model: [finding.record() for finding in found] for model, found in told.items()},
            "noise": {model: [row.record() for row in floor] for model, floor in floors.items()},
            "recheck": _rechecks(run),
        })  # fmt: skip
        return
    tables.comparison(rows)
    if by is None:
        for floor in floors.values():
            tables.noise(floor)
        for model, found in told.items():
            tables.lines([f"What {run.label(model)} shows:"] if len(told) > 1 else [])
            tables.findings(found)
        tables.lines(_recheck_lines(run))


def _rechecks(run: Run) -> dict[str, Any]:
    return {model: run.facts(model)["recheck"] for model in run.models if "recheck" in run.facts(model)}


def _recheck_lines(run: Run) -> list[str]:
    """What computing many answers at once changed."""
    told = []
    for model, found in _rechecks(run).items():
        text = f"{run.label(model)}: {found['same']} of {found['checked']} greedy answers are the same written alone"
        if found["margins"]:
            text += (
                f"; the others part where two tokens are within {max(found['margins']):.2g} of each other (rounding)"
            )
        told.append(f"{text}.")
    return told


def show_flips(
    path: Path, condition: str | None, against: str, model: str | None, temperature: float | None, top: int, json: bool
) -> None:
    run = open_run(path)
    name = condition or run.main
    if name == against:
        raise FigureError(f"{name!r} does not differ from itself; name two conditions, by --condition and --against")
    found = flips(run, name, against, model, temperature)
    if json:
        tables.print_json({"condition": name, "against": against, "flips": tables.flip_records(found)})
    else:
        tables.flips(found, (against, name), top)


def show_heads(
    path: Path, condition: str | None, by: str, top: int, queries: str, model: str | None, json: bool
) -> None:
    run = open_run(path)
    table = head_table(run, condition or run.main, queries, model)
    if json:
        tables.print_json(tables.head_records(table, by, top))
    else:
        tables.heads(table, by, top)


def profile_text(
    text: str, model: str, layer: int, head: int | None, queries: str, top: int, out: Path | None, device: str,
    accept_licence: bool, json: bool,
) -> None:  # fmt: skip
    from fillerscope.api import attention_profile, top_tokens
    from fillerscope.models.loading import load_model

    text = _text_of(text)
    with TerminalProgress(json) as reporter:
        loaded = load_model(model, device=device, progress=reporter, accept_licence=accept_licence)
        reporter.stage("measuring", 0, None)
        profile = attention_profile(loaded.model, loaded.tokenizer, [text], queries)
    rows = top_tokens(profile, layer, head, top)
    if out is not None:
        _write_profile(profile, out)
    if json:
        tables.print_json({"model": loaded.name, "layer": layer, "head": head, "queries": queries, "tokens": rows})
        return
    where = f"layer {layer}, " + ("mean of all heads" if head is None else f"head {head}")
    cells = [[str(row["position"]), repr(row["token"]), f"{row['received']:.4f}"] for row in rows]
    tables.table(f"{loaded.label}, {where}: tokens by attention received", ("position", "token", "received"), cells)
    if out is not None:
        tables.lines([f"Wrote {out / 'profile.csv'}, all layers and heads"])


def _write_profile(profile: Profile, out: Path) -> None:
    from fillerscope.figures.style import write_csv

    with disk_errors(FigureError, f"to {out}", "choose another folder"):
        out.mkdir(parents=True, exist_ok=True)
        write_csv(profile.columns(), out / "profile.csv")


def show_models(json: bool) -> None:
    from fillerscope.models.catalogue import CATALOGUE, DEFAULT, cache_folder
    from fillerscope.models.gguf import converted_folder

    records: list[dict[str, Any]] = [
        {
            "name": entry.name, "default": entry.name == DEFAULT, "family": entry.family, "shape": entry.shape,
            "download_bytes": entry.download_bytes, "licence": entry.licence, "licence_url": entry.licence_url,
            "cached": converted_folder(entry.name, entry.sha256).exists(),
        }
        for entry in CATALOGUE.values()
    ]  # fmt: skip
    if json:
        tables.print_json({"cache": str(cache_folder()), "models": records})
        return
    rows = [
        [str(r["name"]), str(r["family"]), str(r["shape"]), f"{r['download_bytes'] / 2**20:.0f} MiB",
         "yes" if r["cached"] else "no", str(r["licence"])]
        for r in records
    ]  # fmt: skip
    tables.table("Models that need no hub account", ("name", "family", "shape", "download", "cached", "licence"), rows)
    tables.lines(["Hub ids (owner/name), folders and .gguf files work as well.", f"Cache: {cache_folder()}"])


def get_model(name: str, accept_licence: bool, json: bool) -> None:
    from fillerscope.models.resolve import resolve

    with TerminalProgress(json) as reporter:
        folder = resolve(name, reporter, accept_licence)
    if json:
        tables.print_json({"name": folder.name, "path": str(folder.path), "digest": folder.digest})
    else:
        tables.lines([f"{folder.label} is ready in {folder.path}"])


def export_tables(path: Path, out: Path | None, kind: str, json: bool) -> None:
    from fillerscope.analysis.export import export

    run = open_run(path)
    with TerminalProgress(json) as reporter:
        reporter.stage("writing tables", 0, None)
        files = export(run, out or run.path / "tables", kind)
    if json:
        tables.print_json({"files": [str(file) for file in files]})
    else:
        tables.lines([f"Wrote {file}" for file in files])


def _fresh_report(run: Run, quiet: bool) -> Path:
    """The report of a run, written again only where the run is newer."""
    file, manifest = run.path / "report.html", run.path / MANIFEST
    if file.exists() and file.stat().st_mtime >= manifest.stat().st_mtime:
        return file
    return _write_report(run, file, quiet)


def _write_report(run: Run, file: Path, quiet: bool) -> Path:
    from fillerscope.report.html import write_report as write

    with TerminalProgress(quiet) as reporter:
        return write(run, file, reporter.stage)


def write_report(path: Path, out: Path | None, json: bool) -> None:
    run = open_run(path)
    file = _write_report(run, out or run.path / "report.html", json)
    size = file.stat().st_size
    if json:
        tables.print_json({"run": str(path), "report": str(file), "bytes": size})
    else:
        tables.lines([f"Wrote {file} ({size / 1e6:.1f} MB): open it in any browser, or send it to somebody"])


def view_runs(paths: Sequence[Path], port: int | None, browse: bool) -> None:
    from fillerscope.report.explorer.serve import serve

    serve(paths, port, browse, lambda text: tables.lines([text]))


def verify_run(path: Path, json: bool) -> bool:
    """Whether all is well."""
    run = open_run(path)
    faults = run.store.verify() or faults_of(run)
    if json:
        tables.print_json({"run": str(path), "files": len(run.store.manifest["files"]), "faults": faults})
    elif faults:
        tables.lines([*faults, f"{path}: {len(faults)} faults; run the study again to mend missing or damaged files"])
    else:
        tables.lines(
            [f"{path}: {len(run.store.manifest['files'])} files as they were written, all problems accounted for"]
        )
    return not faults


def _draw(
    run: Run, names: list[str], changes: dict[str, Any], out: Path | None, quiet: bool, strict: bool = False
) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """The files of each figure, and why others were not drawn; `strict` makes that an error."""
    drawn: dict[str, list[Path]] = {}
    missed: dict[str, str] = {}
    with TerminalProgress(quiet) as reporter:
        for number, name in enumerate(names):
            reporter.stage("drawing", number, len(names))
            try:
                drawn[name] = draw_and_save(run, name, asked(run, name).but(**changes), out)
            except Exception as error:  # what one figure cannot do must not cost the others, nor the findings
                if strict:
                    raise
                missed[name] = str(error)
                reporter.say(f"{name} was not drawn: {error}")
    return drawn, missed


def _report_figures(run: Run, drawn: dict[str, list[Path]], missed: dict[str, str], json: bool) -> None:
    if json:
        figures = {name: [str(file) for file in files] for name, files in drawn.items()}
        tables.print_json({"run": str(run.path), "figures": figures, "not_drawn": missed})
    else:
        tables.lines([f"Wrote {file}" for files in drawn.values() for file in files])


def _summary(run: Run, drawn: dict[str, list[Path]], told: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "models": {
            model: {
                **_counts(run, model),
                "selfcheck": run.facts(model).get("selfcheck"),
                "rowcheck": run.facts(model).get("rowcheck"),
                "answercheck": run.facts(model).get("answercheck"),
                "recheck": run.facts(model).get("recheck"),
                "findings": [finding.record() for finding in told[model]],
                "heads": tables.head_records(head_table(run, run.main, model=model), "drop", TOP)
                if run.fillers and run.has_attention
                else None,
            }
            for model in run.models
        },
        "figures": {name: [str(file) for file in files] for name, files in drawn.items()},
    }


def _counts(run: Run, model: str) -> dict[str, int]:
    if not run.has_attention:
        return {"problems": len(run.problems())}
    return {"problems": len(run.records(model)), "measured": len(run.measured(model))}


def _show_failures(run: Run, model: str) -> None:
    if run.has_attention:
        failed = [record for record in run.records(model) if record["status"] == "failed"]
        if failed:
            first = f"{failed[0]['id']}: {failed[0]['error']}"
            tables.lines([f"{len(failed)} problems could not be measured; the first, {first}"])
    if run.has_answers:
        columns = run.answer_columns(model)
        failed_at = [place for place, verdict in enumerate(columns["verdict"]) if verdict == "failed"]
        if failed_at:
            first = f"{columns['id'][failed_at[0]]}: {columns['note'][failed_at[0]]}"
            tables.lines([f"{len(failed_at)} answers failed and are not counted; the first, {first}"])


def _text_of(text: str) -> str:
    """The text itself, or what a file of that name holds."""
    try:
        path = Path(text)
        if path.is_dir():
            raise PromptError(f"{text} is a folder; give a text, or the path of a text file")
        return path.read_text(encoding="utf-8") if path.is_file() else text
    except UnicodeDecodeError:
        raise PromptError(f"{text} is not a text file in UTF-8") from None
    except (OSError, ValueError):  # too long for a file name: a text
        return text
