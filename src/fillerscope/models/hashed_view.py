"""A temporary folder in which transformers finds the hashed files of a model, and no others.

A config can send transformers to other files, in other folders too, which no digest would tell apart. In this folder
there is nothing but links to the files that the digest counts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.models.digests import counted_files


@dataclass(frozen=True)
class HashedView:
    """The temporary folder, and the folder that it shows."""

    path: Path
    source: Path

    def explain(self, message: str) -> str:
        """A message of transformers with the path that the user knows."""
        return message.replace(str(self.path), str(self.source))

    def rename(self, loaded: object) -> None:
        """Give a config, model or tokenizer the path that the user knows: the temporary one is gone when it is used."""
        for settings in (vars(loaded), vars(loaded).get("init_kwargs", {})):
            for key, value in settings.items():
                if isinstance(value, str) and value.startswith(str(self.path)):
                    settings[key] = self.explain(value)


@contextmanager
def hashed_view(folder: Path) -> Iterator[HashedView]:
    """A view of a model's folder. It is removed when the block ends; files that are open stay open."""
    with tempfile.TemporaryDirectory(prefix="fillerscope-", ignore_cleanup_errors=True) as name:
        view = Path(name).resolve()
        try:
            for relative, path in counted_files(folder).items():
                _link(path.resolve(), view / relative)
        except OSError as error:
            raise ModelError(f"the files of {folder} cannot be read: {first_line(error)}") from error
        yield HashedView(view, folder)


def _link(source: Path, target: Path) -> None:
    """A symbolic link; a hard one or a copy where the system does not let us make any."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.symlink(source, target)
    except (OSError, NotImplementedError):
        try:
            os.link(source, target)
        except (OSError, NotImplementedError):
            shutil.copyfile(source, target)
