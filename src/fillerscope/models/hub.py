"""A model from the Hugging Face hub: safetensors, configs and tokenizer files, never pickles or code."""

from __future__ import annotations

from pathlib import Path

from fillerscope.errors import ModelError
from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.checks import refuse_pickles
from fillerscope.problems import hub_download
from fillerscope.problems.hub_listing import Repo
from fillerscope.progress import SILENT, Progress

ALLOWED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
# Folders in a repository hold other formats, and `consolidated` holds the same weights a second time.
IGNORED = ["*/*", "consolidated*"]


def snapshot(name: str, progress: Progress = SILENT, damaged: Path | None = None) -> Path:
    """The newest version of a repository, or the one in the hub's own cache when the hub is out of reach.

    A damaged file is downloaded anew."""
    repo = Repo(name)
    try:
        listing = hub_download.list_files(repo)
    except Exception as error:  # the hub's HTTP library, and with it the errors, changes between releases
        if damaged is None and (folder := cached(name)) is not None:
            return folder
        raise ModelError(_refusal(repo, error)) from None
    if damaged is not None:
        hub_download.remove(repo, damaged)  # what is missing is downloaded
    files = listing.names
    if not any(_wanted([file for file in files if file.endswith(".safetensors")])):
        refuse_pickles(files, name)
    try:
        return hub_download.download(repo, listing, _wanted(files), progress)
    except Exception as error:  # as above
        raise ModelError(_refusal(repo, error)) from None


def cached(name: str) -> Path | None:
    """The version in the hub's own cache, or None where it is not complete. Uses no network."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=ALLOWED, ignore_patterns=IGNORED, local_files_only=True))
    except Exception:  # whatever the reason: it is not here
        return None


def _wanted(files: list[str]) -> list[str]:
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    return list(filter_repo_objects(files, allow_patterns=ALLOWED, ignore_patterns=IGNORED))


def _refusal(repo: Repo, error: Exception) -> str:
    from huggingface_hub import errors

    not_found = errors.RepositoryNotFoundError | errors.HFValidationError
    if isinstance(error, not_found) and not isinstance(error, errors.GatedRepoError):
        name = repo.name
        return f"{name} is no folder here and not on the hub; check the spelling, or `hf auth login` if it is private"
    return hub_download.explain(repo, error, f"use a model that needs no hub: {', '.join(CATALOGUE)}")
