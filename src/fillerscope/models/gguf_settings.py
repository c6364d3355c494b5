"""Settings of a GGUF file that transformers does not read, of which another model would be made without a word.

Refused, unless they say what the model is anyway; how a text is split is corrected where that is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fillerscope.errors import ModelError
from fillerscope.files import Json

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

Settings = Json
# What a model has of these is compared with the shapes of its weights, or changes none of its numbers.
_OF_SHAPES = re.compile(r"(\w*feed_forward_length|embedding_length|vocab_size|context_length|tensor_data_layout)$")
_ROTARY_SCALING = "rope.scaling."
# Settings of the config that say the same, under any of its names.
_SAME = {
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "layer_norm_epsilon", "norm_eps"),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "use_parallel_residual": ("use_parallel_residual",),
}
_NEUTRAL = {
    "attention.causal": True, "attention.clamp_kqv": 0, "rope.scale_linear": 1, "logit_scale": 1, "residual_scale": 1,
    "embedding_scale": 1, "expert_count": 0, "expert_used_count": 0, "attention.head_count": 0,
}  # fmt: skip
# Ways to split a text before merges, by `tokenizer.ggml.pre`: as GPT-2 does, which transformers takes where it knows no
# other, and with every digit by itself.
_BEFORE = ("qwen2",)  # what versions of transformers before 5.20 split as files say, by the architecture
_AS_GPT2 = ("gpt-2", "mpt", "olmo", "jais", "phi-2")
# Words of the vocabulary are tokens whatever merges there are, and files that do not say so mean a BOS.
_WHOLE_WORDS = (
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
)  # fmt: skip
_SCALED_BY_WIDTH = (("gemma2", 46), ("gemma3_text", 62))  # of 27B: by width and heads, where others go by the head
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens that are found whole in a text
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "codeshell", "command-r", "exaone", "minerva-7b")


def read_settings(path: Path) -> Settings:
    """The settings of a file; of lists of the tokenizer the length alone."""
    from gguf import GGUFReader

    fields = GGUFReader(str(path)).fields
    return {
        key: len(field.data) if key.startswith("tokenizer.") and len(field.data) > 1 else field.contents()
        for key, field in fields.items()
    }


@dataclass(frozen=True)
class WholeToken:
    """A token that is found in a text before anything is split."""

    number: int
    text: str
    is_control: bool  # it is no part of what a text says


def whole_tokens(path: Path) -> list[WholeToken]:
    """The tokens of a file that are found whole in a text."""
    from gguf import GGUFReader

    fields = GGUFReader(str(path)).fields
    tokens, kinds = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.token_type")
    if tokens is None or kinds is None:
        return []
    types = [int(kinds.parts[at][0]) for at in kinds.data]
    return [
        WholeToken(number, bytes(tokens.parts[tokens.data[number]]).decode(errors="replace"), kind == _CONTROL)
        for number, kind in enumerate(types)
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def refuse_unread(settings: Settings, config: PretrainedConfig, name: str) -> None:
    """Refuse a file with settings of which nothing is in the config that transformers made of it, and with those of
    another architecture, which it reads as well."""
    architecture = str(settings["general.architecture"])
    others = _mapping().keys() - {"general", "tokenizer", architecture}
    for key in settings:
        if key.partition(".")[0] in others:
            raise ModelError(
                f"{name} is of the architecture {architecture!r:.40} and says {key!r:.60}: convert it anew"
            )
    own = {
        key.removeprefix(f"{architecture}."): value
        for key, value in settings.items()
        if key.startswith(f"{architecture}.")
    }
    for key in sorted(own.keys() - _read(settings, config, architecture)):
        if not _is_said(key, own, config):
            raise _refusal(name, f"{architecture}.{key}", own[key])
    _refuse_other_scale(config, name)


def _refuse_other_scale(config: PretrainedConfig, name: str) -> None:
    """Files of Gemma do not say how attention is scaled, and transformers takes what most of them have."""
    scalar = _get(config, "query_pre_attn_scalar")
    largest = (config.model_type, config.num_hidden_layers) in _SCALED_BY_WIDTH
    right = config.hidden_size // config.num_attention_heads if largest else _get(config, "head_dim")
    if scalar is not None and scalar != right:
        raise _refusal(name, "nothing of query_pre_attn_scalar", right)


def _refusal(name: str, key: str, value: object) -> ModelError:
    return ModelError(
        f"{name} says {key}: {value!r:.60}, which transformers does not read from GGUF files; without that it would be "
        "another model: give its safetensors, as a folder or a hub id"
    )


def _read(settings: Settings, config: PretrainedConfig, architecture: str) -> set[str]:
    """The settings of the architecture that transformers reads."""
    makers = getattr(_part_of_transformers("gguf.gguf_config_mapping"), "GGUF_CONFIG_ARCHS", {})
    if architecture in makers:
        noted = _Noted(settings)
        makers[architecture](noted, ())
        return {key.removeprefix(f"{architecture}.") for key in noted.asked}
    known = _mapping()
    mapping = known.get(config.model_type.removesuffix("_text")) or known.get(architecture, {})
    scaling = {key for key in settings if _ROTARY_SCALING in key} if config.model_type == "gpt_oss" else set()
    return {key for key, meant in mapping.items() if meant is not None} | {
        key.removeprefix(f"{architecture}.") for key in scaling
    }


def _mapping() -> dict[str, dict[str, str | None]]:
    """By architecture, which settings transformers reads under which names."""
    return getattr(_part_of_transformers("ggml"), "GGUF_CONFIG_MAPPING", {})


def _part_of_transformers(name: str) -> ModuleType | None:
    """A module of its integrations, of which older versions have fewer."""
    try:
        return import_module(f"transformers.integrations.{name}")
    except ImportError:
        return None


class _Noted(dict[str, object]):
    """Settings that note which of them are asked for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> object:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:
        self.asked.add(key)
        return super().get(key, default)


def _is_said(key: str, own: Settings, config: PretrainedConfig) -> bool:
    """Whether the config says what a setting says that was not read."""
    value = own[key]
    if _OF_SHAPES.fullmatch(key):
        return True
    if key.startswith(_ROTARY_SCALING):
        kind, factor = own.get("rope.scaling.type", "none"), own.get("rope.scaling.factor", 1)
        return kind == "none" and factor in (0, 1)
    if key in _NEUTRAL and value == _NEUTRAL[key]:
        return True
    if key == "attention.sliding_window" and type(value) is int and value >= own.get("context_length", math.inf):
        return True
    return any(_equal(value, said) for said in _said(key, config))


def _said(key: str, config: PretrainedConfig) -> list[object]:
    """What a config says of a setting."""
    rotary = _get(config, "rope_parameters") or {}
    head = _get(config, "head_dim") or config.hidden_size // config.num_attention_heads
    if key in ("attention.key_length", "attention.value_length"):
        return [head]
    if key == "attention.scale":
        return [head**-0.5]
    if key == "rope.dimension_count":
        return [int(head * (rotary.get("partial_rotary_factor") or _get(config, "partial_rotary_factor") or 1))]
    if key == "rope.freq_base":
        return [rotary.get("rope_theta")]
    if key == "attention.max_alibi_bias" and config.model_type == "bloom":
        return [8.0]
    return [_get(config, name) for name in _SAME.get(key, ())]


def _get(config: PretrainedConfig, name: str) -> Any:
    """A setting of a config; None where it has none, or another one for each layer, of which some configs complain."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def _equal(value: object, said: object) -> bool:
    if isinstance(value, int | float) and isinstance(said, int | float):
        return math.isclose(value, said, rel_tol=1e-6)
    return value == said


def corrected(tokenizer: PreTrainedTokenizerFast, settings: Settings, name: str) -> None:
    """Let a tokenizer split texts and add tokens as its file says. Refused where that is not known."""
    _begin_and_end(tokenizer, settings)
    kind, how = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.pre")
    if kind == "gpt2":
        _split(tokenizer, how, name)
    if settings.get("tokenizer.ggml.add_bos_token", kind == "llama" or how in _WHOLE_WORDS):
        _add_bos(tokenizer)
    ids = tokenizer("a")["input_ids"]
    if settings.get("tokenizer.ggml.add_eos_token") and ids[-1:] != [tokenizer.eos_token_id]:
        raise _refusal(name, "tokenizer.ggml.add_eos_token", True)
    space = settings.get("tokenizer.ggml.add_space_prefix")
    if kind == "llama" and space is not False:
        _prefix_spaces(tokenizer)
    first = tokenizer.convert_ids_to_tokens(tokenizer("a", add_special_tokens=False)["input_ids"])[0]
    if space is not None and bool(space) != first.startswith(("\u2581", "\u0120")):
        raise _refusal(name, "tokenizer.ggml.add_space_prefix", space)


def _begin_and_end(tokenizer: PreTrainedTokenizerFast, settings: Settings) -> None:
    """Give a tokenizer the BOS and EOS of its file: some versions of transformers take others."""
    for name in ("bos", "eos"):
        number = settings.get(f"tokenizer.ggml.{name}_token_id")
        if number is not None and getattr(tokenizer, f"{name}_token_id") != number:
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))


def _split(tokenizer: PreTrainedTokenizerFast, how: str | None, name: str) -> None:
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    known = getattr(_part_of_transformers("gguf.gguf_tokenizer_mapping"), "GGUF_PRE_TOKENIZER_SPLITS", _BEFORE)
    if how in _SINGLE_DIGITS:
        splits = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(splits)
    elif how is None:
        raise ModelError(f"{name} does not say how texts are split (tokenizer.ggml.pre); convert it again")
    elif how not in (*_AS_GPT2, *known):
        raise _refusal(name, "tokenizer.ggml.pre", how)
    tokenizer.backend_tokenizer.model.ignore_merges = how in _WHOLE_WORDS


def _prefix_spaces(tokenizer: PreTrainedTokenizerFast) -> None:
    """Put a space before all that stands between tokens which are found whole, as SentencePiece does: transformers puts
    one at the beginning of a text alone, and none where there is one."""
    from tokenizers.normalizers import Prepend, Replace, Sequence

    tokenizer.backend_tokenizer.normalizer = Sequence([Prepend("\u2581"), Replace(" ", "\u2581")])
    tokenizer.backend_tokenizer.pre_tokenizer = None


def keep_whole(tokenizer: PreTrainedTokenizerFast, whole: Sequence[WholeToken], name: str) -> None:
    """Let a tokenizer find the tokens whole that its file says are: transformers knows some of them, others by version.

    Refused where a text would still give other numbers.
    """
    from tokenizers import AddedToken

    lost = [token for token in whole if not _is_whole(tokenizer, token)]
    for control in (True, False):
        added = [AddedToken(token.text, normalized=False) for token in lost if token.is_control == control]
        tokenizer.add_tokens(added, special_tokens=control)
    for token in lost:
        if not _is_whole(tokenizer, token):
            raise _refusal(name, f"the token {token.text!r:.40} is one", token.number)


def _is_whole(tokenizer: PreTrainedTokenizerFast, token: WholeToken) -> bool:
    return bool(tokenizer.encode(token.text, add_special_tokens=False) == [token.number])


def _add_bos(tokenizer: PreTrainedTokenizerFast) -> None:
    """Make the tokenizer add its BOS: transformers does not read this setting, and Gemma fails without a BOS."""
    from tokenizers.processors import TemplateProcessing

    bos, number = tokenizer.bos_token, tokenizer.bos_token_id
    if number is None or tokenizer("a")["input_ids"][:1] == [number]:
        return
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )
