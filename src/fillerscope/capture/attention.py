"""The attention function registered with transformers, and the forward pass that records with it.

Registered under one name with transformers' own AttentionInterface, so stock models run unchanged. What
cannot be measured exactly is refused by name. Knows nothing of problems, conditions or statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fillerscope.capture import blocks, fused
from fillerscope.capture.attention_inputs import AttentionInputs, LayerSums, ScoreRule
from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule, mask_rule
from fillerscope.capture.memory import stays, to_device, wait_for
from fillerscope.capture.packing import Packing
from fillerscope.errors import CaptureError
from fillerscope.models.attention import refuse_unknown, using_attention
from fillerscope.models.spread import layer_devices
from fillerscope.models.structure import decoder_of, device_of, has_alibi, head_count, layer_count
from fillerscope.models.tensor_parallel import added_up, own_heads, processes, widened

NAME = "fillerscope"


@dataclass
class Recorder:
    """The sums of one forward pass, filled layer by layer."""

    packing: Packing
    device: torch.device
    received: Tensor  # [layer, head, group, key]: sums of rows below the diagonal
    diagonal: Tensor  # [layer, head, token]
    parts: dict[int, Tensor] = field(default_factory=dict)  # of the entropy: by layer [text, head, group, part]
    sink_sums: dict[int, Tensor] = field(default_factory=dict)  # by layer with learned sinks [text, head, group]
    prefixes: Sequence[Mapping[int, tuple[Tensor, Tensor]]] = ()  # keys and values of each prefix, by layer
    keep: bool = False  # whether keys and values are wanted
    kept: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # [kv_head, token, dim]
    block: int | None = None  # rows at a time; None: as many as suit the shape
    without: tuple[int, ...] = ()  # layers that have no attention
    inspect: tuple[int, dict[int, AttentionInputs]] | None = None  # a layer, and where its queries and keys are put
    attended: Callable[[int, Tensor], None] | None = (
        None  # called with a layer and its heads' outputs [token, head, dim]
    )

    @classmethod
    def of(cls, model: nn.Module, packing: Packing, **more: Any) -> Recorder:
        device = device_of(model)
        layers, heads, groups = layer_count(model), head_count(model), len(packing.weights)
        shapes = (layers, heads, groups, packing.key_count), (layers, heads, packing.tokens)
        away = not stays(4 * sum(map(math.prod, shapes)), device)
        place = torch.device("cpu") if away else device
        make = torch.empty if processes() == 1 else torch.zeros  # heads of other processes are added to
        received, diagonal = (make(shape, device=place, pin_memory=away) for shape in shapes)
        recorder = cls(packing, device, received, diagonal, **more)
        for layer in recorder.without:
            received[layer] = diagonal[layer] = torch.nan  # missing, not zero
        return recorder

    def prefix_of_layer(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of all prefixes of the pass [kv_head, position, dim], one after another."""
        if not self.prefixes:
            return None
        if len(self.prefixes) == 1:
            return self.prefixes[0][layer]
        keys, values = zip(*(prefix[layer] for prefix in self.prefixes), strict=True)
        return torch.cat(keys, 1), torch.cat(values, 1)

    @contextmanager
    def layer_sums(self, layer: int, device: torch.device) -> Iterator[LayerSums]:
        """Tensors for a layer's sums on the device where it runs; afterwards they are copied to where sums are kept."""
        own = own_heads(self.received.shape[1])
        kept = LayerSums(self.received[layer, own], self.diagonal[layer, own])
        if self.received.device == device:
            yield kept
            return
        on_device = LayerSums(*(torch.empty_like(tensor, device=device) for tensor in kept))
        yield on_device
        for target, tensor in zip(kept, on_device, strict=True):
            target.copy_(tensor, non_blocking=True)

    def entropy(self) -> Tensor:
        """[layer, text, head, group], texts in the order of the row. The parts are added up in float64, so that how
        many there are, which neighbours in the row decide, does not show."""
        sums = {layer: parts.sum(-1, dtype=torch.float64).float() for layer, parts in self.parts.items()}
        return self._of_all_layers(sums)

    def sinks(self) -> Tensor | None:
        """[layer, text, head, group], texts in the order of the row; NaN in layers without a learned sink."""
        if not self.sink_sums:
            return None
        return self._of_all_layers(self.sink_sums)

    def _of_all_layers(self, sums: Mapping[int, Tensor]) -> Tensor:
        """[layer, text, head, group] of [text, head, group] by layer; NaN in layers without."""
        here = {layer: values.to(self.device) for layer, values in sums.items()}
        missing = torch.full_like(next(iter(here.values())), torch.nan)
        stacked = torch.stack([here.get(layer, missing) for layer in range(len(self.received))])
        return added_up(widened(stacked, self.received.shape[1], axis=2))


_active: ContextVar[Recorder | None] = ContextVar("fillerscope_recorder", default=None)


def active_recorder() -> Recorder:
    """Return the recorder of the forward pass in progress."""
    recorder = _active.get()
    if recorder is None:
        raise CaptureError("the fillerscope attention is for use inside `record`; set another implementation")
    return recorder


def captured_attention(
    module: torch.nn.Module,
    query: Tensor,  # [row, head, token, dim]
    key: Tensor,  # [row, kv_head, token, dim]
    value: Tensor,
    attention_mask: MaskRule | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,  # [head]: learned sinks
    **extra: Any,
) -> tuple[Tensor, None]:
    """Return the usual attention output, and add what every position receives to the active recorder.

    The parameters are those that transformers calls attention functions with."""
    refuse_unknown(module, dropout, extra)
    recorder = active_recorder()
    rule = PLAIN_CAUSAL if attention_mask is None else attention_mask
    if not isinstance(rule, MaskRule):
        raise CaptureError(
            f"{type(module).__name__} makes its own mask, which is not known to be right for packed texts"
        )
    if key.shape[2] != query.shape[2]:
        raise CaptureError(
            f"{type(module).__name__} attends to {key.shape[2]} keys where there are {query.shape[2]} tokens: keys "
            "that stand for no single token cannot be measured"
        )
    _refuse_unshared(module, query.shape[1], recorder.received.shape[1])
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    hidden = recorder.packing.hidden(layer)
    queries, keys, values = (_one_row(tensor) for tensor in (query, key, value))
    scores = ScoreRule(rule, scale, softcap, s_aux)
    inputs = AttentionInputs(queries, keys, values, scores, recorder.prefix_of_layer(layer))
    with recorder.layer_sums(layer, query.device) as sums:
        if hidden is None and fused.can_serve(query, rule, recorder.packing):
            output, recorder.parts[layer], sink_sums = fused.attend(inputs, recorder.packing, sums)
        else:
            output, recorder.parts[layer], sink_sums = blocks.attend(
                inputs, recorder.packing, sums, recorder.block, hidden
            )
    if sink_sums is not None:
        recorder.sink_sums[layer] = sink_sums
    if recorder.attended is not None:
        recorder.attended(layer, output)
    if recorder.inspect is not None and recorder.inspect[0] == layer:
        recorder.inspect[1][layer] = inputs
    if recorder.keep:
        recorder.kept[layer] = inputs.key, inputs.value
    return torch.unflatten(output, 0, (recorder.packing.rows, -1)), None


def _refuse_unshared(module: nn.Module, here: int, heads: int) -> None:
    """Raise where several processes share a model, and not the heads of its attention."""
    if processes() > 1 and here * processes() != heads:
        raise CaptureError(
            f"transformers has no plan by which {processes()} processes share the heads of {type(module).__name__}: "
            "measure this model in one process"
        )


def _one_row(tensor: Tensor) -> Tensor:
    """[head, token, dim] of [row, head, token, dim]."""
    return tensor[0] if len(tensor) == 1 else tensor.transpose(0, 1).flatten(1, 2)


def register() -> None:
    """Register our attention and mask functions with transformers. Doing so twice is harmless."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, captured_attention)
    AttentionMaskInterface.register(NAME, mask_rule)


@contextmanager
def capturing(model: nn.Module, name: str = NAME) -> Iterator[None]:
    """Inside the block a stock model runs with our attention; afterwards with its own again."""
    register()
    with using_attention(model, name):
        yield


def observe(model: nn.Module, recorder: Recorder) -> Recorder:
    """Run one forward pass, inside `capturing`, over the texts of the recorder's packing, and return the recorder."""
    device, shape = device_of(model), (recorder.packing.rows, -1)
    ids, positions = (to_device(array, device).view(shape) for array in recorder.packing.row())
    token = _active.set(recorder)
    try:
        with torch.inference_mode():
            # A mask of ones says that nothing is padding; without one transformers would look for packed texts itself.
            decoder_of(model)(
                input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions, use_cache=False
            )
    finally:
        _active.reset(token)
    missing = sorted(set(range(layer_count(model))) - recorder.parts.keys() - {*recorder.without})
    if missing:
        names = ", ".join(str(layer + 1) for layer in missing)
        also = ", and its positions are alibi biases" if has_alibi(decoder_of(model)) else ""
        raise CaptureError(f"layers {names} do not attend through transformers' attention interface{also}")
    if recorder.received.device != device:
        wait_for(layer_devices(model))  # until all of it has arrived
    added_up(recorder.received)
    added_up(recorder.diagonal)
    return recorder
