"""Random numbers by place: each is computed from its sequence's seed, its stream and its index, and from nothing else.

So a number does not depend on what is drawn beside it, on the batch or on the device: only whole numbers are mixed,
with results that wrap around at 32 or 64 bits everywhere. Not for secrets. Knows nothing of what is drawn for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import torch
from torch import Tensor

MOVES, CHOICES, NOISE = 1, 2, 3  # the streams: how far an element moves, whether it is chosen, and noise

# Odd numbers from the fractional parts of square roots, and how far each round of mixing shifts.
SPREAD = 0x9E3779B1
ROUNDS = ((16, 0x6A09E667), (15, 0xBB67AE85), (17, 0x3C6EF373))
LAST_SHIFT = 15
LONG_ROUNDS = ((32, 0x6A09E667F3BCC909), (29, 0x3C6EF372FE94F82B), (32, 0x510E527FADE682D1))
LONG_LAST_SHIFT = 29
STREAM, STEP, LAYER = 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0x428A2F98D728AE23
_UNIT = 2.0**-24
CHOICE_BITS = 16


def sequence_seed(seed: int, ids: Sequence[int], sample: int = 0) -> int:
    """The seed of a sequence that begins with these tokens: below 2**63, the same on every machine. Samples of one
    prompt have seeds of their own; the first has that of the prompt alone."""
    text = f"{seed}:{','.join(map(str, ids))}" + (f":{sample}" if sample else "")
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def step_seeds(seeds: Sequence[int] | Tensor, steps: Sequence[int] | Tensor, layer: int) -> Tensor:
    """[sequence] int64: one for every sequence, number of tokens before this call, and layer; where tensors are."""
    first, second = (torch.as_tensor(numbers, dtype=torch.int64) for numbers in (seeds, steps))
    return _mixed_long(_mixed_long(first + second * STEP) + signed(layer * LAYER, 64))


def words(seeds: Tensor, stream: int) -> Tensor:
    """[sequence, 2] int32: what the mixing of a stream's numbers begins with, and what it takes in on its way."""
    return _mixed_long(seeds.to(torch.int64) + signed(stream * STREAM, 64)).view(torch.int32).view(-1, 2)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """On a device, without the host waiting for what that has still to do."""
    pinned = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return pinned.to(device, non_blocking=True)


def bits(seeds: Tensor, stream: int, count: int) -> Tensor:
    """[sequence, count] int32, every bit pattern as likely as any other. Fewer than 2**31 of a sequence."""
    first, second = words(seeds, stream)[:, :, None].unbind(1)
    mixed = torch.arange(count, dtype=torch.int32, device=seeds.device) * signed(SPREAD, 32) + first
    for turn, (shift, factor) in enumerate(ROUNDS):
        mixed ^= _shifted(mixed, shift)
        mixed *= signed(factor, 32)
        if turn == 0:
            mixed ^= second
    mixed ^= _shifted(mixed, LAST_SHIFT)
    return mixed


def uniform(seeds: Tensor, stream: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[sequence, count] from 0 to just below 1, in steps of 2**-24."""
    return _shifted(bits(seeds, stream, count), 8).to(dtype).mul_(_UNIT)


def choices(seeds: Tensor, count: int) -> Tensor:
    """[sequence, count] int32 from 0 to 65,535: the smallest ones are chosen."""
    return _shifted(bits(seeds, CHOICES, count), 32 - CHOICE_BITS)


def normal(seeds: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[sequence, count] of the standard normal distribution, from a table of 65,536 equally likely values up to 4.3."""
    places = _shifted(bits(seeds, NOISE, count), 32 - CHOICE_BITS)
    return _quantiles(seeds.device)[places].to(dtype)


@cache
def _quantiles(device: torch.device) -> Tensor:
    half = 2 ** (CHOICE_BITS - 1)
    upper = torch.tensor([NormalDist().inv_cdf(0.5 + (place + 0.5) / (2 * half)) for place in range(half)])
    return torch.cat([-upper.flip(0), upper]).to(device)


def _mixed_long(values: Tensor) -> Tensor:
    for shift, factor in LONG_ROUNDS:
        values = (values ^ _shifted(values, shift, 64)) * signed(factor, 64)
    return values ^ _shifted(values, LONG_LAST_SHIFT, 64)


def _shifted(values: Tensor, places: int, size: int = 32) -> Tensor:
    """To the right, zeros coming in from the left: torch's own shift brings in copies of the sign."""
    return (values >> places).bitwise_and_((1 << (size - places)) - 1)


def signed(number: int, size: int) -> int:
    """The same bits as a signed number, which is what torch multiplies with."""
    number %= 1 << size
    return number - (1 << size) if number >> (size - 1) else number
