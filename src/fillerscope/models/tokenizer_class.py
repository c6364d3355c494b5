"""Which classes of transformers may be the tokenizer of a model: those that are built on the library `tokenizers`.

Others are written in Python and read files in their own ways. Some open whatever a setting or another file names, so
that files which are not hashed would decide about tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.errors import ModelError
from fillerscope.models.redirects import read_settings

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def refuse_python_tokenizer(folder: Path, config: PretrainedConfig) -> None:
    """Refuse a tokenizer that is not built on the library `tokenizers`, before it is run."""
    from transformers import PreTrainedTokenizer
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    for name in _names(folder, config):
        kind = tokenizer_class_from_name(name)
        if kind not in (None, PreTrainedTokenizer):  # transformers takes its class of that library for these
            refuse_other_class(kind, name, folder)


def refuse_other_class(kind: object, name: str, folder: Path) -> None:
    """Refuse a class that is not built on that library."""
    from transformers import PreTrainedTokenizerFast

    if not isinstance(kind, type) or not issubclass(kind, PreTrainedTokenizerFast):
        raise ModelError(
            f"{folder}: its tokenizer is of the class {name:.60}, which is not built on the library `tokenizers` and "
            "may read files that are not hashed; use a model with a tokenizer.json and the class "
            "PreTrainedTokenizerFast"
        )


def _names(folder: Path, config: PretrainedConfig) -> Iterator[str]:
    """The names of the classes that transformers may choose: the declared one, else the usual one of the family, which
    it takes for models of some names as well."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    path = folder / "tokenizer_config.json"
    settings = read_settings(path) if path.exists() else {}
    declared = settings.get("tokenizer_class") or getattr(config, "tokenizer_class", None)
    usual = None if declared and not hasattr(config, "model_name") else TOKENIZER_MAPPING_NAMES.get(config.model_type)
    for name in (declared, None if usual == "MistralCommonBackend" else usual):  # which is not asked for
        if isinstance(name, str):
            yield from (name, name.removesuffix("Fast"))
