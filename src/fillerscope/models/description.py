"""What a model's folder says of itself, without its weights: tokenizer and configuration. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.models.hashed_view import HashedView, hashed_view
from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.tokenizer_checks import check_loaded, check_tokenizer
from fillerscope.models.tokenizer_class import refuse_other_class, refuse_python_tokenizer
from fillerscope.prompts.chat_template import start_renderer
from fillerscope.prompts.tokenizer import Tokenizer, is_panic

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LONGEST_REASON = 300  # characters


def load_tokenizer(folder: ModelFolder) -> Tokenizer:
    """The tokenizer of a model."""
    from transformers import AutoTokenizer

    with hashed_view(folder) as view, view.explaining():
        check_tokenizer(view.path)
        config = _config(view)
        refuse_python_tokenizer(view.path, config)
        try:
            tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
                view.path, config=config, mistral_format=False, trust_remote_code=False, local_files_only=True
            )
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            said = view.explain(first_line(error))
            raise ModelError(f"the tokenizer in {folder.path} cannot be loaded: {said}") from error
        refuse_other_class(type(tokenizer), type(tokenizer).__name__, view.path)  # whatever led to it
        check_loaded(tokenizer, view.path)
        view.rename(tokenizer)
    start_renderer(tokenizer)
    return tokenizer


def stated_context(folder: ModelFolder) -> int | None:
    """How many tokens a model takes, as its config says, without loading it."""
    return getattr(read_config(folder).get_text_config(decoder=True), "max_position_embeddings", None)


def stated_layers(folder: ModelFolder) -> int:
    """How many layers a model has, as its config says, without loading it."""
    return int(read_config(folder).get_text_config(decoder=True).num_hidden_layers)


def stated_vocabulary(folder: ModelFolder) -> int | None:
    """How many token ids a model takes, as its config says, without loading it."""
    return getattr(read_config(folder).get_text_config(decoder=True), "vocab_size", None)


def read_config(folder: ModelFolder) -> PretrainedConfig:
    """The configuration of a model. Whoever loads one begins with it."""
    hide_hub_code()
    with hashed_view(folder) as view:
        config = _config(view)
        view.rename(config)
    return config


def _config(view: HashedView) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(view.path, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        said = view.explain(reason(error))
        raise ModelError(f"config.json in {view.folder.path} cannot be read: {said}") from error


def reason(error: BaseException) -> str:
    """What an error of transformers says, in one line: the field that is wrong stands in the first, why in the next."""
    said = first_line(error)
    below = str(error).strip().splitlines()[1:2]
    whole = " ".join([said, *(line.strip() for line in below)]) if said.endswith(":") else said
    return whole if len(whole) <= LONGEST_REASON else f"{whole[:LONGEST_REASON]} ..."
