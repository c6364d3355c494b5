"""The options of --engine ray: what was asked for, and what does not belong together."""

from __future__ import annotations

from fillerscope.errors import StudyError
from fillerscope.measure.engines.ray.cluster import RayChoices

ENGINES = ("local", "ray")


def ray_choices(engine: str, given: RayChoices) -> RayChoices | None:
    """What Ray is told; None where this process measures."""
    if engine not in ENGINES:
        raise StudyError(f"--engine takes {' or '.join(ENGINES)}, not {engine!r}")
    if engine == "ray":
        return given
    options = {"workers": "--workers", "cpus": "--num-cpus", "gpus": "--num-gpus", "address": "--address"}
    if asked := [options[key] for key, value in given.items() if value is not None]:
        raise StudyError(f"{asked[0]} belongs to --engine ray: give that as well, or leave it out")
    return None
