"""Choose and fetch the files of a data set's split on the Hugging Face hub.

Runs no code from the hub and guesses at nothing: where several files could be meant it names them. It
does not read what it fetches; that is `readers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from fillerscope.errors import ProblemError
from fillerscope.problems import hub_download
from fillerscope.problems.hub_listing import Listing, Repo
from fillerscope.problems.readers import READERS
from fillerscope.problems.rows import one_line
from fillerscope.progress import SILENT, Progress

# Descriptions of data sets that end like data.
NOT_DATA = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
# `test-00000-of-00001`, with or without a trailing hash, and `test/0000` are pieces of `test`.
PIECE = re.compile(r"(-(\d{5})-of-(\d{5})(-[0-9a-f]+)?|/(\d+))$")
USUAL_FOLDERS = ("data", "default", "main")
MOST_NAMED = 200  # files or splits of which an error is made; it shows fewer, in 200 characters


def fetch(repo: str, split: str, progress: Progress = SILENT) -> Iterator[tuple[Path, str]]:
    """Each file of the split, fetched when it is asked for, with the name to call it by."""
    listing = _listed(repo)
    for file in choose_files(repo, listing.names, split):
        yield _fetched(repo, listing, file, progress), f"hub:{repo}/{file}"


def choose_files(repo: str, files: Sequence[str], split: str) -> list[str]:
    """The pieces of one split in order; a lone data file is taken whatever it is called."""
    candidates = sorted(file for file in files if _is_data(file))
    if not candidates:
        raise ProblemError(_without_data(repo, files))
    if len(candidates) == 1:
        return candidates
    labels = [_label(file) for file in candidates]  # once: a hub may list names that fill hundreds of megabytes
    known = sorted(set(labels))
    fitting = _labels_of(split, known)
    if len(fitting) != 1:
        result = "several files fit" if fitting else "no file fits"
        names = _first_of(fitting or known)
        raise ProblemError(f"hub:{repo}: {result} split {split!r}; set problems.split to one of: {names}")
    pieces = [file for file, label in zip(candidates, labels, strict=True) if label == fitting[0]]
    # The same rows in two formats are still one split.
    suffix = next(suffix for suffix in READERS if any(_suffix(file) == suffix for file in pieces))
    chosen = [file for file in pieces if _suffix(file) == suffix]
    if not _are_whole(chosen):
        names = _first_of(chosen)
        raise ProblemError(
            f"hub:{repo}: these files are not the pieces of one split, each once: {names}; download those that belong "
            "together, and give a local file"
        )
    return chosen


def _first_of(names: Sequence[str]) -> str:
    """The first of some names on one line."""
    return one_line(", ".join(names[:MOST_NAMED]))


def _are_whole(files: Sequence[str]) -> bool:
    """Whether files are one file, or all pieces of one: a repository may keep those of an earlier upload."""
    found = [PIECE.search(file[: -len(_suffix(file))]) for file in files]
    if len(files) == 1 and (found[0] is None or found[0][3] is None):
        return True
    counts = {each[3] for each in found if each}
    numbers = [int(each[2] or each[5]) for each in found if each]
    count = counts.pop() if len(counts) == 1 else "-1"
    return len(numbers) == len(files) == int(count or len(files)) and sorted(numbers) == list(range(len(files)))


def _labels_of(split: str, labels: Sequence[str]) -> list[str]:
    """Labels that fit the split, by the strictest reading that any label fits."""
    word = re.compile(rf"(?<![a-z0-9]){re.escape(split.lower())}(?![a-z0-9])")
    usual = {f"{folder}/{split}" for folder in USUAL_FOLDERS}
    readings = (
        [label for label in labels if label == split],
        [label for label in labels if label in usual],
        [label for label in labels if label.endswith(f"/{split}")],
        [label for label in labels if word.search(label.lower())],
    )
    return next((fitting for fitting in readings if fitting), [])


def _label(file: str) -> str:
    return PIECE.sub("", file[: -len(_suffix(file))])


def _suffix(file: str) -> str:
    return PurePosixPath(file).suffix.lower()


def _is_data(file: str) -> bool:
    return _suffix(file) in READERS and PurePosixPath(file).name not in NOT_DATA


def _without_data(repo: str, files: Sequence[str]) -> str:
    scripts = [file for file in files if file.endswith(".py")]
    if scripts:
        reason = f"is made by a script ({scripts[0]}), which fillerscope does not run"
    else:
        reason = f"has no file that ends in {' or '.join(READERS)}"
    return f"hub:{repo} {reason}; save the data as a .jsonl file and give its path"


def _listed(repo: str) -> Listing:
    try:
        return hub_download.list_files(Repo(repo, "dataset"))
    except Exception as error:  # the hub's HTTP library, and with it the errors, changes between releases
        raise ProblemError(_refusal(repo, error)) from None


def _fetched(repo: str, listing: Listing, file: str, progress: Progress) -> Path:
    try:
        return hub_download.download(Repo(repo, "dataset"), listing, [file], progress) / file
    except Exception as error:  # as above
        raise ProblemError(_refusal(repo, error)) from None


def _refusal(repo: str, error: Exception) -> str:
    """One line that says what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return f"hub:{repo} is not the name of a data set; expected hub:owner/name"
    if isinstance(error, errors.RepositoryNotFoundError) and not isinstance(error, errors.GatedRepoError):
        return f"hub:{repo} does not exist or is private; check the name, or run `hf auth login`"
    return hub_download.explain(Repo(repo, "dataset"), error, "give a local file or `builtin`")
