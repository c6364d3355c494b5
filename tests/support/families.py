"""Every decoder family that transformers can build, small and with random weights: exact, or refused by name.

    python tests/support/families.py [NAME ...]          a line a family
    python tests/support/families.py --write             all of them, as the table of docs/models.md
    python tests/support/families.py --device cuda --dtype bfloat16 [NAME ...]

Weights are drawn with a standard deviation of 0.15: at the usual 0.02 a state that leaks from text to text is lost in
rounding. What fillerscope gives is compared with the stock model's own attention weights, each text alone, which
shares no code with it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

sys.path.insert(0, str(Path(__file__).parents[1]))

from fillerscope.answers.local.answer_check import ENGINES, MOST, answercheck
from fillerscope.answers.request import Request
from fillerscope.capture.attention import capturing
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.row_check import check_rows
from fillerscope.capture.self_check import check_capture
from fillerscope.errors import FillerscopeError
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import attention_modules, decoder_of, layer_count
from fillerscope.study.generation import Decoding
from support.tiny import redraw, tiny_tokenizer

FAMILIES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
EXACT = {torch.float32: 1e-5, torch.bfloat16: 1.0}  # weights this large make chaos of half precision in every model
LENGTHS = (12, 37, 5, 90, 41, 300)  # tokens behind what all texts begin with
PREFIX = 8
SPREAD = 0.15
LARGEST = 20_000_000  # parameters of a model that is called small
WIDEST = 100  # characters of a table's cell

_SIZES = {
    64: "hidden_size n_embd d_model dim embed_dim word_embed_proj_dim lru_width emb_dim",
    96: "intermediate_size ffn_dim n_inner dff ffn_hidden_size d_ff shared_intermediate_size mlp_intermediate_size "
    "decoder_ffn_dim encoder_ffn_dim",
    4: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_attention_heads n_head n_heads "
    "num_heads decoder_attention_heads encoder_attention_heads num_experts num_local_experts n_routed_experts "
    "moe_num_experts linear_num_value_heads mamba_d_conv",
    2: "num_key_value_heads num_kv_heads num_global_key_value_heads num_experts_per_tok num_experts_per_token moe_topk "
    "moe_k moe_top_k linear_num_key_heads index_n_heads mamba_expand",
    16: "head_dim attention_head_dim kv_channels v_head_dim qk_nope_head_dim global_head_dim linear_key_head_dim "
    "linear_value_head_dim mamba_d_state mamba_d_head mamba_head_dim ssm_state_size state_size chunk_size "
    "mamba_chunk_size index_head_dim hidden_size_per_layer_input",
    8: "qk_rope_head_dim rotary_dim mamba_n_heads mamba_num_heads n_mamba_heads time_step_rank mamba_dt_rank "
    "laurel_rank",
    32: "q_lora_rank kv_lora_rank moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size "
    "moe_shared_expert_intermediate_size",
    1: "n_group topk_group n_shared_experts num_shared_experts first_k_dense_replace first_dense_layers "
    "num_dense_layers mamba_n_groups mamba_ngroups n_groups",
    0: "num_kv_shared_layers",
    24: "qk_head_dim",
    128: "mamba_d_ssm",
    512: "vocab_size vocab_size_per_layer_input",
    1024: "max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length index_topk",
}
SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 3, "sep_token_id": 4}
_LINEAR = ["linear_attention", "full_attention"] * 2
OTHERS: dict[str, dict[str, Any]] = {  # where sizes alone do not make a model, or not one with all its kinds of layers
    "bamba": {"attn_layer_indices": [1, 3]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "minimax": {"layer_types": _LINEAR},
    "qwen3_next": {"layer_types": _LINEAR},
    "qwen3_5_text": {"layer_types": _LINEAR},
    "olmo_hybrid": {"layer_types": _LINEAR},
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "reformer": {"is_decoder": True},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "zamba": {
        "num_hidden_layers": 6,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "n_mamba_heads": 2,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "layer_types": ["mamba", "hybrid"] * 2,
        "hybrid_layer_ids": [1, 3],
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
    },
    "bailing_hybrid": {"layer_group_size": 2, "num_expert_group": 1, "n_group": 1, "topk_group": 1},
    "longcat_flash": {"head_dim": 8, "zero_expert_num": 2},
    "zaya": {"num_experts_per_tok": 1},
}


@dataclass(frozen=True)
class Verdict:
    """What becomes of a family. `difference` is of attention received; `wrong` says what is not as it must be."""

    family: str
    attention: str
    answers: str = ""
    difference: float = 0.0
    wrong: str = ""


def small_config(family: str, **overrides: Any) -> Any:
    """A configuration of the family's own class with every size made small."""
    return _small(CONFIG_MAPPING[family], OTHERS.get(family, {}) | overrides)


def _small(kind: Any, overrides: dict[str, Any]) -> Any:
    usual = kind()
    values = usual.to_dict()
    sizes = SMALL | SPECIAL
    if "qk_rope_head_dim" in values:  # heads of latent attention have a size for each part, and no groups
        sizes = {name: size for name, size in sizes.items() if name != "head_dim"} | {"num_key_value_heads": 4}
    given = {
        name: sizes[name] for name, value in values.items() if name in sizes and not isinstance(value, list | dict)
    }
    parts = [name for name in getattr(kind, "sub_configs", {}) if getattr(usual, name, None) is not None]
    given |= {name: _small(type(getattr(usual, name)), {}) for name in parts}
    return kind(**(given | overrides))


def small_model(family: str, **overrides: Any) -> Any:
    config = small_config(family, **overrides)
    kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    with torch.device("meta"):
        try:
            empty = kind(config)
        except AttributeError:  # some classes want the text's part of a configuration of several
            config = config.get_text_config(decoder=True)
            empty = kind(config)
    size = sum(parameter.numel() for parameter in empty.parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters are left")
    torch.manual_seed(0)
    model = kind(config)
    redraw(model, SPREAD)
    model.eval().requires_grad_(False)
    with torch.inference_mode():
        model(input_ids=torch.arange(5, 25)[None], use_cache=False)  # sizes that do not fit one another say so here
    return model


def judge(family: str, model: Any) -> Verdict:
    """Measured, answered and compared, as a study would do it."""
    try:
        loaded = wrap(model, tiny_tokenizer(), family)
        check_capture(loaded)
        rows = check_rows(loaded, max(LENGTHS) + PREFIX)
    except FillerscopeError as error:
        return Verdict(family, f"refused: {error}")
    texts = _texts()
    with capturing(model):
        measured = PassRunner(model, 10_000, layout=rows.layout).measure(texts)
    gaps = [_gap(model, text.ids, measured.text(number).mean_received()[0]) for number, text in enumerate(texts)]
    answers, wrong = _answers(loaded, texts)
    if not max(gaps) <= EXACT[model.dtype]:
        wrong = f"attention received differs by {max(gaps):.1e}"
    return Verdict(family, rows.layout, answers, max(gaps), wrong)


def _texts() -> list[Text]:
    random = np.random.default_rng(0)
    prefix = random.integers(5, 500, PREFIX).tolist()
    ids = [(*prefix, *random.integers(5, 500, count).tolist()) for count in LENGTHS]
    return [Text(one, np.ones(len(one), np.bool_), PREFIX) for one in ids]


@torch.inference_mode()
def _gap(model: Any, ids: tuple[int, ...], received: NDArray[np.float64]) -> float:
    """From [layer, head, position] to the stock model's weights, by their definition."""
    model.set_attn_implementation("eager")
    weights = decoder_of(model)(input_ids=_row(model, ids), output_attentions=True, use_cache=False).attentions
    layers = sorted(attention_modules(decoder_of(model)))
    if len(weights) == layer_count(model):  # some give what they have in place of attention, too
        weights = [weights[layer] for layer in layers]
    there = [one for one in weights if one is not None]
    if len(there) != len(layers):
        return float("nan")
    voters = np.arange(len(ids) - 1, 0, -1)
    expected = [np.tril(one[0].double().cpu().numpy(), -1).sum(1)[:, :-1] / voters for one in there]
    return max(float(np.abs(received[layer, :, :-1] - one).max()) for layer, one in zip(layers, expected, strict=True))


def _answers(loaded: LoadedModel, texts: list[Text]) -> tuple[str, str]:
    """How they are written, and what is wrong with them."""
    requests = [Request(text.ids, number, PREFIX) for number, text in enumerate(texts)]
    try:
        engine = answercheck(loaded, requests, 4).engine
        replies = ENGINES[engine](loaded, 4).answer(requests, Decoding(max_tokens=6), lambda _: None)
    except FillerscopeError as error:
        return f"refused: {error}", ""
    parted = [n for n, (request, reply) in enumerate(zip(requests, replies, strict=True))
              if not _is_greedy(loaded.model, request.ids, reply.ids)]  # fmt: skip
    return engine, f"answers {parted} are not the greedy ones" if parted else ""


@torch.inference_mode()
def _is_greedy(model: Any, ids: tuple[int, ...], written: tuple[int, ...]) -> bool:
    """Whether each token was the likeliest after those before it, up to rounding."""
    logits = model(input_ids=_row(model, (*ids, *written[:-1])), use_cache=False).logits[0, -len(written) :].float()
    chosen = logits.gather(1, _row(model, written).T)[:, 0]
    return bool((logits.amax(-1) - chosen <= MOST[model.dtype] * logits.std(-1)).all())


def _row(model: Any, ids: Sequence[int]) -> Tensor:
    return torch.tensor([ids], device=model.device)


ATTENTION = {"shared": "exact", "packed": "exact, without shared prefixes", "apart": "exact, a row for each text"}
ANSWERS = {"rows": "many at once", "alone": "one at a time"}
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
INTRODUCTION = """# Which models can be measured

What becomes of every family that transformers {version} can build as a causal language model. Each is built from a
small configuration, with random weights of standard deviation 0.15, in float32 on a CPU.

- **Attention.** Texts of unequal length, up to 308 tokens, with and without a shared prefix, are measured as a study
  would measure them. The result is compared with the stock model's own attention weights, each text alone.
- **Answers.** Greedy answers are compared with plain forward passes.

`python tests/support/families.py --write` makes this page; a test repeats the comparison.

{exact} families are exact (largest difference {largest:.0e} of attention received), {refused} are refused by name, and
{missing} could not be built small.

| family | attention | answers |
|---|---|---|
"""


def row_of(verdict: Verdict) -> str:
    attention = ATTENTION.get(verdict.attention, verdict.attention)
    return f"| {verdict.family} | {_cell(attention)} | {_cell(ANSWERS.get(verdict.answers, verdict.answers))} |"


def _cell(text: str) -> str:
    """Short enough to be read: what a refusal goes on to say is left to the message itself."""
    text = text.replace("|", "/").partition(";")[0]
    return text if len(text) <= WIDEST else text[: WIDEST - 3].rpartition(" ")[0] + " ..."


def verdict_on(family: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Verdict:
    try:
        model = small_model(family)
    except Exception as error:  # not every class is made small by sizes alone
        return Verdict(family, f"not built: {type(error).__name__}")
    return judge(family, model.to(device, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--write", action="store_true", help="write docs/models.md")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    verdicts = []
    for family in given.families:
        verdicts.append(verdict_on(family, given.device, getattr(torch, given.dtype)))
        print(row_of(verdicts[-1]), f"{verdicts[-1].difference:.1e}", verdicts[-1].wrong, flush=True)
    if given.write:
        exact = [one for one in verdicts if one.attention in ATTENTION]
        refused = [one for one in verdicts if one.attention.startswith("refused")]
        top = INTRODUCTION.format(
            version=transformers.__version__, exact=len(exact), refused=len(refused),
            missing=len(verdicts) - len(exact) - len(refused), largest=max(one.difference for one in exact),
        )  # fmt: skip
        PAGE.write_text(top + "\n".join(map(row_of, verdicts)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
