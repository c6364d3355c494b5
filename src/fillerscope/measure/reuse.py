"""Whether a run that was measured before holds what another study asks for, judged by the identities of both."""

from __future__ import annotations

from fillerscope.files import Json

COMPARED = ("study", "libraries")  # of an identity, part by part; all else is the same
SAME_SETTINGS = ("prompt", "seed", "batch")  # of the study in it


def holds(stored: Json, wanted: Json) -> bool:
    """Whether a run of the identity `stored` has all numbers of one of the identity `wanted`, up to rounding.

    It may have more conditions, probes, answers and untrained twins. Data, models, seeds, code and libraries are the
    same. More conditions round otherwise: the prompts of a problem are measured in one batch. Where answers are wanted,
    conditions are the same too: their p values are adjusted over all comparisons.
    """
    same = (stored.keys() | wanted.keys()) - set(COMPARED)
    alike = all(key in stored and key in wanted and stored[key] == wanted[key] for key in same)
    alike = alike and stored.get("study", {}).keys() >= set(SAME_SETTINGS)
    if not alike or not wanted["libraries"].items() <= stored["libraries"].items():
        return False
    have, want = stored["study"], wanted["study"]
    if any(have[key] != want[key] for key in SAME_SETTINGS):
        return False
    parts = _has_conditions(have, want), _has_probes(have["probes"], want["probes"]), _has_twins(have, want)
    return all(parts) and want["generation"] in (None, have["generation"])


def has_more_conditions(stored: Json, wanted: Json) -> bool:
    """Whether a run has conditions that are not wanted: a problem may have failed because of one of them."""
    return bool(stored["study"]["conditions"] != wanted["study"]["conditions"])


def _has_conditions(have: Json, want: Json) -> bool:
    if want["generation"] is not None:
        return bool(have["conditions"] == want["conditions"])
    same_reference = _reference(have["conditions"]) == _reference(want["conditions"])
    return same_reference and all(one in have["conditions"] for one in want["conditions"])


def _reference(conditions: list[Json]) -> Json | None:
    """The condition whose length the closed-form reference uses, as `Study.reference` has it."""
    return next((one for one in conditions if one["kind"] != "none" and not one["intervention"]), None)


def _has_probes(have: Json, want: Json) -> bool:
    """Attention is counted in the same way; every other probe is off, or the same."""
    more = (value in (None, False, have.get(key)) for key, value in want.items() if key != "attention")
    return bool(have["attention"] == want["attention"]) and all(more)


def _has_twins(have: Json, want: Json) -> bool:
    return want["references"]["twin"] in (0, have.get("references", {}).get("twin", 0))
