"""Which verdicts a study can reach, by what it asks for and by how many problems it has.

The rules are those of `analysis.findings`; no number of a run is known yet, so that what depends on one is put as a
condition: "if filler changes 20% of the verdicts".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isfinite

from fillerscope.analysis.findings.answers import SMALL
from fillerscope.analysis.findings.attention_claims import sentences_among, unseen_among
from fillerscope.analysis.findings.claim import FEWEST
from fillerscope.analysis.findings.decision import MEASURE_TWINS, TWINS
from fillerscope.analysis.power import detectable_difference, needed_n
from fillerscope.files import Json
from fillerscope.study.conditions import Condition
from fillerscope.study.study import Study

CHANGED = 0.2  # share of verdicts that filler changes, for want of a number: about what is met in practice
COARSE = 0.1  # a study that shows no smaller difference than this is called out


@dataclass(frozen=True)
class Outlook:
    """Whether a question can be answered by a study, why not, and what to write."""

    question: str
    reachable: bool
    text: str

    def record(self) -> Json:
        """The same for programs."""
        return asdict(self)


def outlooks(study: Study, problems: int) -> list[Outlook]:
    """What a study can tell with so many problems."""
    main = study.reference or next(iter(study.conditions[1:]), None)
    if main is None:
        return [Outlook("filler", False, "Nothing is compared: add a condition with filler, such as mless.")]
    return [*_attention(study, main, problems), *_mechanism(study), _accuracy(study, problems)]


def _attention(study: Study, main: Condition, problems: int) -> Iterator[Outlook]:
    question = f"Does {main.name} change where the model attends, beyond what length does?"
    if study.probes.attention is None:
        yield Outlook(question, False, "Not measured: probes.attention is off.")
    elif problems < FEWEST:
        yield Outlook(question, False, f"Needs {FEWEST} problems, and there are {problems}.")
    elif study.references.twin < 2:
        yield Outlook(question, False, f"No effect is claimed without untrained models: add `{MEASURE_TWINS}`.")
    else:
        yield Outlook(question, True, _compared(study, main))


def _compared(study: Study, main: Condition) -> str:
    """What an effect on attention is compared with, and which controls are missing."""
    controls = unseen_among(study.conditions, main), sentences_among(study.conditions, main)
    named = ", ".join(name for names in controls for name in names)
    few = f"; {TWINS} or more are better" if study.references.twin < TWINS else ""
    text = f"Compared with {study.references.twin} untrained models{few}"
    text += f" and with {named}." if named else "."
    missing = [name for name, known in zip(("positions", "random"), controls, strict=True) if not known]
    if missing and main.has_filler:
        text += f" Without a control of {' and '.join(WHAT[name] for name in missing)}: add {' and '.join(missing)}"
        text += "." if main.count == 55 else f", with {main.count} tokens."
    return text


WHAT = {"positions": "positions alone", "random": "meaningful text of equal length"}


def _mechanism(study: Study) -> Iterator[Outlook]:
    asked = {"affine": study.probes.affine, "activations": study.probes.activations is not None}
    missing = [name for name, is_on in asked.items() if not is_on]
    question = "Is the published explanation right: outputs scaled, activations nearer to zero?"
    if missing:
        keys = ", ".join(f"{name}: on" for name in missing)
        yield Outlook(question, False, f"Not wholly measured: add `probes: {{{keys}}}`.")
    elif study.references.twin < 2:
        yield Outlook(question, False, f"Nothing is claimed without untrained models: add `{MEASURE_TWINS}`.")
    else:
        yield Outlook(question, True, "Measured in every layer, and compared with untrained models.")


def _accuracy(study: Study, problems: int) -> Outlook:
    question = "Does filler change accuracy?"
    if study.generation is None:
        return Outlook(question, False, "Nothing is answered: add `generation: {max_tokens: 512}`.")
    smallest = detectable_difference(problems, CHANGED)
    if not isfinite(smallest):
        return Outlook(question, False, f"With {problems} no difference can be shown, however large.")
    assumed = f", if filler changes {CHANGED:.0%} of the verdicts" if smallest <= CHANGED else ""
    text = (
        f"{problems:,} problems show a difference of {100 * smallest:.0f} percentage points or more (80% power, before "
        f"adjustment){assumed}; {100 * SMALL:g}, about the published gain, would take "
        f"{needed_n(SMALL, CHANGED):,.0f} problems."
    )
    return Outlook(question, smallest <= COARSE, text)
