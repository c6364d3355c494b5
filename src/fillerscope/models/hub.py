"""A model from the Hugging Face hub: safetensors, configs and tokenizer files, never pickles or code."""

from __future__ import annotations

from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.checks import refuse_pickles

ALLOWED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
# Folders in a repository hold other formats, and `consolidated` holds the same weights a second time.
IGNORED = ["*/*", "consolidated*"]


def snapshot(repo: str) -> Path:
    """The newest version of a repository, or the one in the hub's own cache when the hub is out of reach."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repo, allow_patterns=ALLOWED, ignore_patterns=IGNORED))
    except Exception as error:
        raise ModelError(_download_error(repo, error)) from error
    if not any(folder.glob("*.safetensors")):
        refuse_pickles(_files(repo), repo)
    return folder


def cached(repo: str) -> Path | None:
    """The version in the hub's own cache, or None where it is not complete. Uses no network."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(repo, allow_patterns=ALLOWED, ignore_patterns=IGNORED, local_files_only=True)
    except Exception:  # whatever the reason: it is not here
        return None
    return Path(folder)


def _files(repo: str) -> list[str]:
    """File names of a repository, for a better message; empty where the hub is out of reach."""
    from huggingface_hub import HfApi

    try:
        return HfApi().list_repo_files(repo)
    except Exception:
        return []


def _download_error(repo: str, error: Exception) -> str:
    from huggingface_hub import errors

    page = f"https://huggingface.co/{repo}"
    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated: accept its terms at {page}, then run `hf auth login` and try again"
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        return f"{repo} is no folder here and not on the hub; check the spelling, or `hf auth login` if it is private"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled | OSError):
        return (
            f"{repo} is not in the cache and the hub was not reached ({first_line(error)}); check the "
            f"network, or use a model that needs no hub: {', '.join(CATALOGUE)}"
        )
    return f"{repo} cannot be downloaded from the hub: {first_line(error)}"
