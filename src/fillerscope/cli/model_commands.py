"""Commands on models: list the catalogue, fetch one, verify those that are here, or profile a text with one."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from fillerscope.analysis.painted import pieces, scale_of
from fillerscope.analysis.profile import Profile, top_tokens
from fillerscope.analysis.trial import View
from fillerscope.cli import tables
from fillerscope.cli.painted_text import print_legend, print_painted
from fillerscope.cli.try_commands import show_prompts
from fillerscope.errors import FigureError, ModelError, PromptError
from fillerscope.files import Json, disk_errors, read_limited
from fillerscope.progress import Progress, TerminalProgress
from fillerscope.store.own_files import OwnFiles
from fillerscope.study.filler_text import filler_condition

PROFILE = "profile.csv"
LARGEST_TEXT = 1 << 20  # bytes of a text to profile: more tokens than any model takes


def show_models(json: bool) -> None:
    from fillerscope.models.catalogue import CATALOGUE, DEFAULT, cache_folder
    from fillerscope.models.gguf import converted_folder

    records: list[Json] = [
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
        folder = resolve(name, reporter, accept_licence, repair=True)
    if json:
        tables.print_json({"name": folder.name, "path": str(folder.path), "digest": folder.digest})
    else:
        tables.lines([f"{folder.label} is ready in {folder.path}"])


def verify_models(names: list[str], json: bool) -> bool:
    """Read models, all that were converted if none is named, and show which have changed; false if one has."""
    from fillerscope.models.catalogue import cache_folder
    from fillerscope.models.gguf import read_record

    if not names:
        folders = sorted((cache_folder() / "models").glob("*/"))
        names = [_name_of(folder) for folder in folders if read_record(folder) is not None]
    with TerminalProgress(json) as reporter:
        records = [_verified(name, reporter) for name in names]
    if json:
        tables.print_json(records)
    elif not records:
        tables.lines([f"No model was converted yet: {cache_folder()} holds none"])
    else:
        rows = [[str(r["name"]), "ok" if r["ok"] else "CHANGED", str(r["found"])] for r in records]
        tables.table("", ("model", "", "found"), rows)
    return all(record["ok"] for record in records)


def _name_of(folder: Path) -> str:
    """The name of a converted model in the catalogue; for a GGUF file of the user, the folder."""
    from fillerscope.models.catalogue import CATALOGUE
    from fillerscope.models.gguf import converted_folder

    own = (entry.name for entry in CATALOGUE.values() if converted_folder(entry.name, entry.sha256) == folder)
    return next(own, str(folder))


def _verified(name: str, progress: Progress) -> Json:
    from fillerscope.models.resolve import resolve_here

    try:
        return {"name": name, "ok": True, "found": resolve_here(name, progress, fresh=True).digest}
    except ModelError as error:
        return {"name": name, "ok": False, "found": str(error)}


@dataclass(frozen=True)
class ProfileOptions:
    """Which attention of a text to list, of which model, and where to write all of it."""

    model: str
    layer: int
    head: int | None
    queries: str
    top: int
    out: Path | None
    device: str
    accept_licence: bool
    filler: str | None = None


def profile_text(text: str, options: ProfileOptions, json: bool) -> None:
    """Show what the tokens of a text receive, and with filler what that changes."""
    from fillerscope.api import attention_profile, try_question
    from fillerscope.models.loading import load_model

    text, layer, head = _text_of(text), options.layer, options.head
    if options.filler is not None:
        filler_condition(options.filler)  # refuses before a model is loaded
    if options.out is not None:
        with disk_errors(FigureError, f"to {options.out}", "choose another folder"):
            OwnFiles(options.out).refuse_others([PROFILE])
    with TerminalProgress(json) as reporter:
        loaded = load_model(
            options.model, device=options.device, progress=reporter, accept_licence=options.accept_licence
        )
        reporter.stage("measuring", 0, None)
        profile = attention_profile(loaded.model, loaded.tokenizer, [text], options.queries)
        rows = top_tokens(profile, layer, head, options.top)
        trial = None if options.filler is None else try_question(
            text, loaded, options.filler, layer=layer, head=head, queries=options.queries, raw=True, progress=reporter
        )  # fmt: skip
    if options.out is not None:
        _write_profile(profile, options.out)
    if json:
        record = {"model": loaded.name, "layer": layer, "head": head, "queries": options.queries, "tokens": rows}
        tables.print_json(record | ({"trial": trial.record()} if trial else {}))
        return
    where = f"layer {layer}, " + ("mean of all heads" if head is None else f"head {head}")
    cells = [[str(row["position"]), repr(row["token"]), f"{row['received']:.4f}"] for row in rows]
    tables.table(f"{loaded.label}, {where}: tokens by attention received", ("position", "token", "received"), cells)
    if trial is None:
        _paint(profile, View(layer, head))
    else:
        show_prompts(trial)
        tables.lines(["", trial.sentence])
    if options.out is not None:
        tables.lines([f"Wrote {options.out / PROFILE}, all layers and heads"])


def _paint(profile: Profile, view: View) -> None:
    """Print the text with its tokens in colours."""
    received = view.of(profile.mean)
    scale, console = scale_of(received), tables.console()
    shown = pieces(profile.tokens, [""] * len(profile.tokens), received, scale)
    print_painted(console, "The text", shown)
    print_legend(console, scale)


def _write_profile(profile: Profile, out: Path) -> None:
    from fillerscope.figures.style import write_csv

    with (
        disk_errors(FigureError, f"to {out}", "choose another folder"),
        OwnFiles.writing(out) as own,
        own.replacing(PROFILE) as file,
    ):
        write_csv(profile.columns(), file)


def _text_of(text: str) -> str:
    """The text itself, or what a file of that name holds."""
    try:
        path = Path(text)
        if path.is_dir():
            raise PromptError(f"{text} is a folder; give a text, or the path of a text file")
        return read_limited(path, LARGEST_TEXT).decode() if path.exists() else text
    except UnicodeDecodeError:
        raise PromptError(f"{text} is not a text file in UTF-8") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # a text
            return text
        raise PromptError(f"cannot read {text}: {error.strerror}; give a text, or the path of a text file") from None
    except ValueError:  # a null character: a text
        return text
