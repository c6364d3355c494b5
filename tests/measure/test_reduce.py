"""A shard's sums as they are stored, against numpy arrays built by hand, problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fillerscope.capture.packing import GROUPS, Text
from fillerscope.capture.passes import Measured
from fillerscope.measure import reduce as reduction
from fillerscope.measure.reduce import reduce
from fillerscope.prompts.prompt import QUESTION, SYSTEM, TAIL, Prompt
from fillerscope.store.moments import Moments
from fillerscope.store.schema import METRICS
from fillerscope.study.study import AttentionProbe

Floats = NDArray[np.float64]
LAYERS, HEADS = 5, 2


@dataclass(frozen=True)
class Case:
    """Prompts by condition and problem, and sums as a device would have them; one more problem was not measured."""

    prompts: Mapping[str, Sequence[Prompt]]
    numbers: Mapping[str, Sequence[int]]
    measured: Measured


def plain_prompt(system: int, question: int, tail: int) -> Prompt:
    spans = (*[SYSTEM] * system, *[QUESTION] * question, *[TAIL] * tail)
    return Prompt(tuple(range(len(spans))), spans)


def make(shapes: list[tuple[int, int, int]], places: list[float], count: int, unmeasured: int, seed: int) -> Case:
    """Filler at some share of each prompt, and at its end; texts of a problem side by side, as the runner has them."""
    plain = [plain_prompt(*shape) for shape in shapes]
    filled = [p.insert([9] * count, round(at * len(p))) for p, at in zip(plain, places, strict=True)]
    ends = [p.insert([9], len(p)) for p in plain]
    every = {"none": plain, "mless": filled, "end": ends}
    texts = [Text(prompt.ids, prompt.original) for problem in zip(*every.values(), strict=True) for prompt in problem]
    measured = sums(texts, seed, {3 * unmeasured, 3 * unmeasured + 1, 3 * unmeasured + 2})
    kept = [number for number in range(len(shapes)) if number != unmeasured]
    prompts = {name: [some[number] for number in kept] for name, some in every.items()}
    return Case(prompts, {name: [3 * n + i for n in kept] for i, name in enumerate(every)}, measured)


def sums(texts: Sequence[Text], seed: int, broken: set[int]) -> Measured:
    """Random numbers, some of them 0, and none at all for texts that were not measured. Where nobody votes, 0."""
    random = np.random.default_rng(seed)
    ends = list(accumulate(map(len, texts)))
    received = random.random((LAYERS, HEADS, len(GROUPS), ends[-1])).astype(np.float32)
    received[random.random(received.shape) < 0.2] = 0.0
    diagonal = random.random((LAYERS, HEADS, ends[-1])).astype(np.float32)
    diagonal[random.random(diagonal.shape) < 0.5] = 0.0
    entropy = random.random((LAYERS, len(texts), HEADS, len(GROUPS))).astype(np.float32)
    for number, (text, end) in enumerate(zip(texts, ends, strict=True)):
        place = slice(end - len(text), end)
        votes = text.rows[:, ::-1].cumsum(axis=1)[:, ::-1] - text.rows > 0
        received[..., place] *= votes
        if number in broken:
            received[..., place] = diagonal[..., place] = entropy[:, number] = np.nan
    return Measured(*(torch.from_numpy(array) for array in (received, diagonal, entropy)), tuple(texts))


def by_hand(case: Case, probe: AttentionProbe) -> dict[str, Moments]:
    """From the means of each text alone."""
    found: dict[str, Moments] = {}
    plain: list[Floats] = []
    for name, prompts in case.prompts.items():
        whole = [case.measured.text(number).mean_received(probe.diagonal) for number in case.numbers[name]]
        aligned = [values[..., prompt.positions] for values, prompt in zip(whole, prompts, strict=True)]
        plain = plain or aligned
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = [np.log(a) - np.log(b) for a, b in zip(aligned, plain, strict=True)]
        views = {"whole": whole, "aligned": aligned}
        if name != "none":
            differences = [a - b for a, b in zip(aligned, plain, strict=True)]
            views |= {"difference": differences, "logratio": ratios}
        for view, profiles in views.items():
            values = stacked(profiles)[..., : probe.positions]
            found[f"{name}/{view}"] = Moments.of(values, np.isfinite(values))
    return found


def stacked(profiles: Sequence[Floats]) -> Floats:
    values = np.full((len(profiles), *profiles[0].shape[:-1], max(p.shape[-1] for p in profiles)), np.nan)
    for row, profile in zip(values, profiles, strict=True):
        row[..., : profile.shape[-1]] = profile
    return values


def reduced(case: Case, probe: AttentionProbe, elements: int) -> dict[str, NDArray[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "ELEMENTS", {"cpu": elements})
        found = reduce(case.prompts, case.numbers, case.measured, probe)
    return {name: tensor.numpy() for name, tensor in found.items()}


shapes = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    some = draw(st.lists(shapes, min_size=2, max_size=5))
    places = draw(st.lists(st.floats(0, 1), min_size=len(some), max_size=len(some)))
    unmeasured = draw(st.integers(0, len(some) - 1))
    return make(some, places, draw(st.integers(1, 4)), unmeasured, draw(st.integers(0, 2**32)))


@st.composite
def probes(draw: st.DrawFn) -> AttentionProbe:
    return AttentionProbe(
        diagonal=draw(st.booleans()), skip_first=draw(st.booleans()), positions=draw(st.sampled_from([2, 4, 99]))
    )


@settings(deadline=None, max_examples=80)
@given(cases(), probes(), st.sampled_from([1, 300, 1 << 20]))
def test_profiles_are_the_moments_of_what_each_text_gives(case: Case, probe: AttentionProbe, elements: int) -> None:
    found = reduced(case, probe, elements)
    wanted = by_hand(case, probe)
    assert {key.rpartition("/")[0] for key in found if key.endswith("/m2")} == wanted.keys()
    for name, moments in wanted.items():
        assert found[f"{name}/mean"].shape == moments.mean.shape, name
        np.testing.assert_array_equal(
            np.broadcast_to(found[f"{name}/count"], moments.counts.shape), moments.counts, err_msg=name
        )
        np.testing.assert_allclose(found[f"{name}/mean"], moments.mean, rtol=1e-9, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(found[f"{name}/m2"], moments.m2, rtol=1e-9, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(found[f"{name}/m3"], moments.m3, rtol=1e-9, atol=1e-12, err_msg=name)


@settings(deadline=None, max_examples=40)
@given(cases(), probes(), st.sampled_from([1, 300, 1 << 20]))
def test_heads_are_those_of_their_problem(case: Case, probe: AttentionProbe, elements: int) -> None:
    found = reduced(case, probe, elements)
    first = int(probe.skip_first)
    for name, prompts in case.prompts.items():
        heads, peak_at = found[f"{name}/heads"], found[f"{name}/peak_at"]
        assert heads.shape == (len(prompts), len(METRICS), len(GROUPS), LAYERS, HEADS)
        assert peak_at.shape == (len(prompts), len(GROUPS), LAYERS, HEADS)
        for row, (prompt, number) in enumerate(zip(prompts, case.numbers[name], strict=True)):
            text = case.measured.text(number)
            kept = text.mean_received(probe.diagonal)[..., prompt.positions][..., first:]
            np.testing.assert_allclose(heads[row, METRICS.index("entropy")], text.mean_entropy(), rtol=1e-6)
            for cell in np.ndindex(len(GROUPS), LAYERS, HEADS):
                values = kept[cell][np.isfinite(kept[cell])]
                mean, peak = (values.mean(), values.max()) if len(values) else (np.nan, np.nan)
                assert heads[row, 0][cell] == pytest.approx(mean, rel=1e-5, nan_ok=True)
                assert heads[row, METRICS.index("peak")][cell] == pytest.approx(peak, rel=1e-5, nan_ok=True)
                place = int(np.nanargmax(kept[cell])) + first if len(values) else -1
                assert peak_at[row][cell] == place


def example() -> Case:
    return make([(2, 3, 1), (0, 1, 0), (1, 4, 2), (3, 2, 0)], [0.0, 0.5, 0.4, 1.0], 3, unmeasured=1, seed=0)


def test_layers_in_several_pieces_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[slice] = []
    means = reduction._means

    def noting(measured: Measured, layers: slice, *rest: Any) -> Any:
        pieces.append(layers)
        return means(measured, layers, *rest)

    monkeypatch.setattr(reduction, "_means", noting)
    whole = reduced(example(), AttentionProbe(), 1 << 20)
    assert pieces == [slice(0, LAYERS)]
    pieces.clear()
    widest = HEADS * len(GROUPS) * 3 * 10  # three problems of up to ten tokens
    found = reduced(example(), AttentionProbe(), 2 * widest)
    assert pieces == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_ratios_leave_out_zeros_and_nothing_else() -> None:
    case, probe = example(), AttentionProbe()
    found, wanted = reduced(case, probe, 1 << 20), by_hand(case, probe)
    count = found["mless/logratio/count"]
    assert count.shape == found["mless/logratio/mean"].shape  # differs from head to head
    assert (count < np.broadcast_to(found["mless/difference/count"], count.shape)).any()
    np.testing.assert_array_equal(count, wanted["mless/logratio"].counts)
    assert np.isfinite(found["mless/logratio/mean"]).all()


def test_the_diagonal_is_counted_where_it_is_asked_for() -> None:
    without, with_it = (reduced(example(), AttentionProbe(diagonal=on), 1 << 20) for on in (False, True))
    counts = [found["none/whole/count"][0, 0, 0] for found in (without, with_it)]
    assert (counts[1] >= counts[0]).all()
    assert counts[1].sum() == counts[0].sum() + 3  # the last token of each problem votes for itself
    assert not np.allclose(without["none/whole/mean"], with_it["none/whole/mean"])


def test_numbers_are_stored_as_they_always_were() -> None:
    kinds = {"heads": np.float32, "peak_at": np.int32, "count": np.int64, "mean": np.float64}
    kinds |= {"m2": np.float64, "m3": np.float64}
    for name, array in reduced(example(), AttentionProbe(), 1 << 20).items():
        assert array.dtype == kinds[name.rpartition("/")[2]], name
