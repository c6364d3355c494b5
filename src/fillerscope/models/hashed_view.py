"""A temporary folder in which transformers finds the hashed files of a model, and no others.

A config can send transformers to other files, in other folders too, which no digest would tell apart. In this folder
there is nothing but links to the files that the digest counts, and settings of the tokenizer that name no files. The
checks of a model's folder are made here once more: somebody may have exchanged files after those that came first.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import Json, open_file, real_path, write_whole
from fillerscope.models.checks import check_contents, has_weights, refuse_other_place
from fillerscope.models.digest_notes import note_of
from fillerscope.models.digests import counted_files, folder_digest
from fillerscope.models.open_links import link_to, open_path
from fillerscope.models.redirects import TOKENIZER_SETTINGS, read_settings, without_file_names
from fillerscope.models.resolve import ModelFolder


@dataclass(frozen=True)
class HashedView:
    """The temporary folder, and the folder that it shows."""

    path: Path
    folder: ModelFolder
    states: dict[str, Path]

    def refuse_exchanged(self) -> None:
        """Refuse a model whose files are not those that it was loaded from, or are written to since: some of its
        weights may still be read from them."""
        if _states(self.folder.path) != self.states:
            raise _changed(self.folder)

    def explain(self, message: str) -> str:
        """A message of transformers with the path that the user knows."""
        return message.replace(str(self.path), str(self.folder.path))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Inside the block, refusals name the path that the user knows."""
        try:
            yield
        except ModelError as error:
            raise ModelError(self.explain(str(error))) from error

    def rename(self, loaded: object) -> None:
        """Give a config, model or tokenizer the path that the user knows: the temporary one is gone when it is used."""
        for settings in (vars(loaded), vars(loaded).get("init_kwargs", {})):
            for key, value in settings.items():
                if isinstance(value, str) and value.startswith(str(self.path)):
                    settings[key] = self.explain(value)


@contextmanager
def hashed_view(folder: ModelFolder) -> Iterator[HashedView]:
    """A view of a model's folder. It is removed when the block ends; files that are open stay open.

    An error where its files are not those that the model's digest was taken of, or are replaced meanwhile: a link on
    the way to the folder may have led elsewhere."""
    with tempfile.TemporaryDirectory(prefix="fillerscope-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        view, real = Path(name).resolve(), folder.path.resolve()
        try:
            for relative, path in counted_files(real).items():
                file = stack.enter_context(open_file(path))
                refuse_other_place(folder.path / relative, real_path(file, path), real)
                link_to(open_path(file, path), view / relative)
            linked = _states(view)
            refuse_changed(folder, view)
            shown = HashedView(view, folder, linked)
            with shown.explaining():
                check_contents(view, folder.name, has_weights(view))
            cleaned = _cleaned(view)
            if _states(view) != linked:
                raise _changed(folder)
            for path, settings in cleaned.items():
                write_whole(path, [json.dumps(settings).encode()], sync=False)
            before = _states(view)
        except OSError as error:
            raise ModelError(f"the files of {folder.path} cannot be read: {first_line(error)}") from error
        yield shown
        if _states(view) != before:
            raise _changed(folder)


def _cleaned(view: Path) -> dict[Path, Json]:
    """The settings of a tokenizer that name files, without these names."""
    found = {}
    for path in filter(Path.exists, (view / name for name in TOKENIZER_SETTINGS)):
        settings = read_settings(path)
        if (kept := without_file_names(settings)) != settings:
            found[path] = kept
    return found


def refuse_changed(folder: ModelFolder, seen: Path | None = None) -> None:
    """Refuse a model whose files, or those seen at another path, are not those that its digest was taken of."""
    digest = folder.digest.partition(" ")[0]
    if digest and folder_digest(seen or folder.path) != digest:
        raise _changed(folder)


def _changed(folder: ModelFolder) -> ModelError:
    return ModelError(f"files in {folder.path} changed while they were read: try again when nothing writes to them")


def _states(view: Path) -> dict[str, Path]:
    """What tells a file from another one at the same path, and from itself before it was moved or written to."""
    return {name: note_of(path) for name, path in counted_files(view).items()}
