"""Every number of a head against its definition, written out in plain Python from the whole matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fillerscope.capture.packing import Text
from fillerscope.capture.passes import TextAttention
from fillerscope.measure.head_summary import Tokens, summarise
from fillerscope.measure.reduce import _stored
from fillerscope.prompts.prompt import FILLER, QUESTION, SYSTEM, TAIL, Prompt
from fillerscope.store.schema import METRICS, ArrayName
from fillerscope.study.study import QUERIES

Floats = NDArray[np.float64]
LAYERS, HEADS = 2, 3
NOTHING = float("nan")


# What the package does: sums as the capture gives them, and their summary ---------------------------------


def attention(length: int, seed: int, sharp: float = 2.0) -> Floats:
    """Random causal weights [layer, head, query, key]. Some rows put everything on one key, some nothing."""
    random = np.random.default_rng(seed)
    scores = sharp * random.normal(size=(LAYERS, HEADS, length, length))
    scores = np.where(random.random(scores.shape) < 0.1, -np.inf, scores)
    scores[..., range(length), range(length)] = random.normal(size=length)  # every row has something to see
    weights = np.exp(scores) * np.tri(length)
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def sums(weights: Floats, prompt: Prompt) -> TextAttention:
    rows = Text(prompt.ids, prompt.original).rows
    below = weights * np.tri(len(prompt), k=-1)
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logs).sum(-1)
    return TextAttention(
        received=np.einsum("gi,lhij->glhj", rows, below),  # type: ignore[arg-type]  # float64, to compare closely
        diagonal=np.einsum("lhii->lhi", weights),  # type: ignore[arg-type]
        entropy=np.einsum("gi,lhi->glh", rows, entropy),  # type: ignore[arg-type]
        rows=rows,
    )


def measured(
    weights: Floats, prompt: Prompt, plain: Prompt, skip_first: bool, diagonal: bool = False
) -> dict[str, NDArray[Any]]:
    return summary([sums(weights, prompt)], [prompt], [plain], skip_first, diagonal)


def summary(
    texts: Sequence[TextAttention],
    prompts: Sequence[Prompt],
    plain: Sequence[Prompt],
    skip_first: bool,
    diagonal: bool = False,
) -> dict[str, NDArray[Any]]:
    """As `reduction` has it made: problems side by side, all heads on the last axis; and as it is stored."""
    width = max(map(len, prompts))
    values = np.full((len(QUERIES), len(texts), width, LAYERS * HEADS), np.nan)
    for number, text in enumerate(texts):
        means = text.mean_received(diagonal)
        values[:, number, : means.shape[-1]] = means.reshape(len(QUERIES), LAYERS * HEADS, -1).swapaxes(1, 2)
    entropy = np.stack([text.mean_entropy().reshape(len(QUERIES), -1) for text in texts], axis=1)
    tokens = Tokens.of(prompts, plain, np.isfinite(values[..., 0]), skip_first, torch.device("cpu"))
    found = summarise(torch.from_numpy(np.nan_to_num(values)), torch.from_numpy(entropy), tokens)
    return {
        name: _stored(ArrayName.parse(f"any/{name}").quantity, tensor.unflatten(-1, (LAYERS, HEADS))).numpy()
        for name, tensor in zip(("heads", "peak_at"), found, strict=True)
    }


# What docs/method.md says --------------------------------------------------------------------------------


class Reference:
    """One head of one problem for one choice of queries, number by number."""

    def __init__(
        self, matrix: Floats, prompt: Prompt, plain: Prompt, queries: str, skip_first: bool, diagonal: bool
    ) -> None:
        self.a, self.n, self.plain, self.skip_first = matrix, len(prompt), plain, skip_first
        self.filler = [i for i, span in enumerate(prompt.spans) if span == FILLER]
        self.original = [i for i, span in enumerate(prompt.spans) if span != FILLER]
        voters = {"all": list(range(self.n)), "original": self.original, "last": [self.n - 1]}
        self.voters = voters[queries]
        self.received = [
            mean([matrix[i, j] for i in self.voters if i > j or (diagonal and i == j)]) for j in range(self.n)
        ]
        self.numbers = range(1 if skip_first else 0, len(self.original))  # of original tokens, from 0
        self.kept = self.values(self.numbers)

    def values(self, numbers: Sequence[int]) -> list[float]:
        found = [self.received[self.original[number]] for number in numbers]
        return [value for value in found if not math.isnan(value)]

    def cut(self) -> int:
        """The number of the first original token after the filler; without filler, of the question's first."""
        if not self.filler:
            return self.plain.spans.index(QUESTION)
        return sum(1 for i in self.original if i < self.filler[0])

    def received_original(self) -> float:
        return mean(self.kept)

    def received_before(self) -> float:
        return mean(self.values([number for number in self.numbers if number < self.cut()]))

    def received_after(self) -> float:
        return mean(self.values([number for number in self.numbers if number >= self.cut()]))

    def received_filler(self) -> float:
        return mean([self.received[j] for j in self.filler if not math.isnan(self.received[j])])

    def received_first(self) -> float:
        return self.received[0]

    def peak(self) -> float:
        return max(self.kept, default=NOTHING)

    def spread(self) -> float:
        return math.sqrt(self.moment(2))

    def kurtosis(self) -> float:
        if not self.kept or max(self.kept) == min(self.kept):
            return NOTHING
        return self.moment(4) / self.moment(2) ** 2 - 3

    def moment(self, power: int) -> float:
        return mean([(value - mean(self.kept)) ** power for value in self.kept])

    def entropy(self) -> float:
        return mean([-sum(w * math.log(w) for w in self.a[i, : i + 1] if w > 0) for i in self.voters])

    def filler_mass(self) -> float:
        rows = [i for i in self.original if i in self.voters and self.filler and i > self.filler[-1]]
        return mean([sum(self.a[i, j] for j in self.filler) for i in rows])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else NOTHING


# Both, side by side --------------------------------------------------------------------------------------


def compare(prompt: Prompt, plain: Prompt, skip_first: bool, diagonal: bool, seed: int, sharp: float) -> None:
    weights = attention(len(prompt), seed, sharp)
    found = measured(weights, prompt, plain, skip_first, diagonal)
    assert found["heads"].shape == (1, len(METRICS), len(QUERIES), LAYERS, HEADS)
    assert found["peak_at"].shape == (1, len(QUERIES), LAYERS, HEADS)
    for q, queries in enumerate(QUERIES):
        for place in np.ndindex(LAYERS, HEADS):
            truth = Reference(weights[place], prompt, plain, queries, skip_first, diagonal)
            peak_at = int(found["peak_at"][(0, q, *place)])
            if truth.kept:
                assert truth.received[truth.original[peak_at]] == pytest.approx(truth.peak())
                assert peak_at in truth.numbers
            else:
                assert peak_at == -1
            for m, metric in enumerate(METRICS):
                number, said = float(found["heads"][(0, m, q, *place)]), getattr(truth, metric)()
                assert number == pytest.approx(said, rel=1e-4, abs=1e-6, nan_ok=True), (metric, queries)


def plain_prompt(system: int, question: int, tail: int) -> Prompt:
    spans = (*[SYSTEM] * system, *[QUESTION] * question, *[TAIL] * tail)
    return Prompt(tuple(range(len(spans))), spans)


plains = st.builds(plain_prompt, st.integers(0, 3), st.integers(1, 3), st.integers(0, 3))
flags = st.booleans()
seeds = st.integers(0, 2**32)
sharps = st.sampled_from([0.5, 2.0, 8.0])


@settings(deadline=None, max_examples=60)
@given(plains, st.integers(1, 4), st.data(), flags, flags, seeds, sharps)
def test_with_filler_anywhere(
    plain: Prompt, count: int, data: st.DataObject, skip_first: bool, diagonal: bool, seed: int, sharp: float
) -> None:
    at = data.draw(st.integers(0, len(plain)))
    compare(plain.insert([99] * count, at), plain, skip_first, diagonal, seed, sharp)


@settings(deadline=None, max_examples=40)
@example(plain_prompt(0, 1, 0), True, False, 0, 1.0)
@example(plain_prompt(0, 1, 0), False, False, 0, 1.0)
@example(plain_prompt(0, 1, 0), False, True, 0, 1.0)
@given(plains, flags, flags, seeds, sharps)
def test_without_filler(plain: Prompt, skip_first: bool, diagonal: bool, seed: int, sharp: float) -> None:
    compare(plain, plain, skip_first, diagonal, seed, sharp)


@pytest.mark.parametrize("skip_first", [True, False])
@pytest.mark.parametrize("at", [0, 1, 2, 6])
def test_filler_at_the_start_in_the_middle_and_at_the_end(at: int, skip_first: bool) -> None:
    plain = plain_prompt(2, 3, 1)
    compare(plain.insert([99] * 3, at), plain, skip_first, False, seed=at, sharp=2.0)


def value(found: dict[str, NDArray[Any]], metric: str, queries: str = "original") -> NDArray[Any]:
    return np.asarray(found["heads"][0, METRICS.index(metric), QUERIES.index(queries)])


def test_what_is_missing_is_missing_and_not_zero() -> None:
    plain = plain_prompt(2, 3, 0)
    none = measured(attention(5, 0), plain, plain, True)
    for metric in ("received_filler", "filler_mass"):
        assert np.isnan(value(none, metric)).all()
    at_end = measured(attention(9, 0), plain.insert([9] * 4, 5), plain, True)  # nothing follows the filler
    for metric in ("received_filler", "filler_mass", "received_after"):
        assert np.isnan(value(at_end, metric)).all()
    assert np.isfinite(value(at_end, "received_filler", "all")).all()  # filler rows vote on earlier filler
    alone = measured(attention(1, 0), plain_prompt(0, 1, 0), plain_prompt(0, 1, 0), True)
    assert np.isnan(np.delete(alone["heads"][0], METRICS.index("entropy"), axis=0)).all()
    assert (value(alone, "entropy") == 0).all()
    assert (alone["peak_at"] == -1).all()


def uniform(length: int) -> Floats:
    """Every row looks at everything before it alike."""
    return np.broadcast_to(np.tri(length) / np.arange(1, length + 1)[:, None], (LAYERS, HEADS, length, length))


@pytest.mark.parametrize("length", [4, 6, 10, 11, 49])
def test_no_kurtosis_where_all_values_are_alike(length: int) -> None:
    """The last row alone gives every position the same, up to how a mean of equal numbers is rounded."""
    plain = plain_prompt(1, length - 1, 0)
    found = measured(uniform(length), plain, plain, False)
    assert np.isnan(value(found, "kurtosis", "last")).all()
    np.testing.assert_allclose(value(found, "spread", "last"), 0, atol=1e-12)
    assert np.isfinite(value(found, "kurtosis", "original")).all()


def test_uniform_attention_has_known_numbers() -> None:
    plain = plain_prompt(2, 2, 0)
    found = measured(uniform(6), plain.insert([9, 9], 2), plain, False)
    np.testing.assert_allclose(value(found, "filler_mass"), (2 / 5 + 2 / 6) / 2, rtol=1e-6)
    np.testing.assert_allclose(value(found, "filler_mass", "all"), value(found, "filler_mass"), rtol=1e-6)
    np.testing.assert_allclose(value(found, "filler_mass", "last"), 2 / 6, rtol=1e-6)
    np.testing.assert_allclose(value(found, "entropy", "last"), math.log(6), rtol=1e-6)
    np.testing.assert_allclose(value(found, "received_first", "all"), np.mean([1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6]))
    np.testing.assert_allclose(value(found, "received_first"), np.mean([1 / 2, 1 / 5, 1 / 6]), rtol=1e-6)


def test_the_peak_is_the_same_token_wherever_the_filler_stands() -> None:
    plain = plain_prompt(2, 3, 1)
    for at in range(7):
        prompt = plain.insert([9] * 3, at)
        weights = uniform(len(prompt)).copy()
        target = int(prompt.positions[3])
        weights[:, :, target + 1 :] = 0
        weights[:, :, target + 1 :, target] = 1.0  # all that can see original token 3 look at it
        assert (measured(weights, prompt, plain, True)["peak_at"] == 3).all()


def test_problems_keep_their_order_and_may_differ_in_length() -> None:
    bases = [plain_prompt(1, 2, 0), plain_prompt(3, 3, 2), plain_prompt(0, 2, 1)]
    prompts = [plain.insert([9] * 2, 1) for plain in bases]
    texts = [sums(attention(len(prompt), seed), prompt) for seed, prompt in enumerate(prompts)]
    together = summary(texts, prompts, bases, True)
    alone = [summary([a], [b], [c], True) for a, b, c in zip(texts, prompts, bases, strict=True)]
    for key in ("heads", "peak_at"):
        np.testing.assert_allclose(together[key], np.concatenate([each[key] for each in alone]), rtol=1e-6)
    with pytest.raises(ValueError, match=r"shorter|longer"):
        summary(texts, prompts, bases[:2], True)


def test_numbers_are_stored_small() -> None:
    plain = plain_prompt(1, 2, 1)
    found = measured(attention(4, 0), plain, plain, True)
    assert (found["heads"].dtype, found["peak_at"].dtype) == (np.float32, np.int32)
