"""Which intervals and tests stand behind the numbers, over what p is adjusted, and from which seeds is resampled."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from fillerscope.analysis.accuracy import USUAL_K, Accuracy
from fillerscope.analysis.findings.all import available
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.findings.repeated import repeated_findings
from fillerscope.analysis.mechanism import SEED, TESTED
from fillerscope.analysis.noise import way_of
from fillerscope.analysis.power import detectable_difference
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import PATTERNS, paired_interval, sample_interval, split_half
from fillerscope.report.sections import Facts, Section, counted, default, listed
from fillerscope.study.interventions import Redistribution
from fillerscope.study.study import Study

MEAN = "an interval whose ends are the farther ones of Student's and of Hall's, which allows for skewness"
RESAMPLED = 0  # the seed of accuracy tables; a test holds it against them


def statistics(run: Run, table: Sequence[Accuracy]) -> Section:
    """`table`: all comparisons of accuracy."""
    level = default(sample_interval, "level")
    paragraphs = [
        f"All intervals ({level:.0%}) and tests are over problems; a comparison sets each problem against itself under "
        "none. Intervals are not adjusted for the number of heads, layers or conditions."
    ]
    paragraphs += [finding.text for finding in available(lambda: repeated_findings(run)) or []]
    paragraphs += [_attention()] if run.has_attention else []
    paragraphs += [_affine()] if run.study.probes.affine else []
    paragraphs += [_activations()] if run.study.probes.activations else []
    paragraphs += _answers(run) if run.has_answers else []
    return Section("Statistics", paragraphs, _facts(run, table))


def _attention() -> str:
    return (
        f"Means of attention and filler mass have {MEAN}; ratios (drop, peak, spread) are geometric means with the "
        "same interval taken on the logarithms. Numbers by layer take each problem's mean over heads first. The "
        "reliability of a ranking of heads is the mean Spearman correlation over "
        f"{default(split_half, 'splits')} random halvings of the problems."
    )


def _affine() -> str:
    return (
        f"Numbers of the affine picture are means of each problem's mean over the heads of a layer, with {MEAN}; "
        "consistency comes from sums over problems and has none."
    )


def _activations() -> str:
    tested = listed([name.replace("_", " ") for name in TESTED])
    return (
        f"Differences of activation measures have {MEAN}; ratios of variance, L1 and L2 are geometric means with the "
        f"same interval taken on the logarithms. p of {tested} comes from flipping the signs of the problems' "
        f"differences (all patterns of signs, or {PATTERNS:,} random ones where there are more), adjusted by Holm over "
        "the layers, for each measure, condition and class of tokens apart."
    )


def _draws() -> str:
    return f"{default(paired_interval, 'draws'):,} resamples of the problems"


def _answers(run: Run) -> list[str]:
    assert run.study.generation is not None
    counts = [samples for _, samples in run.study.generation.cells()]
    accuracy = [
        "Wilson's for one sample a problem" if min(counts) == 1 else "",
        f"a bootstrap ({_draws()}) for several" if max(counts) > 1 else "",
    ]
    tests = [
        "the exact McNemar test for one sample" if min(counts) == 1 else "",
        "a permutation test on the problems' means for several" if max(counts) > 1 else "",
    ]
    power = default(detectable_difference, "power")
    said = [
        "Accuracy is the mean over problems of each problem's mean over the samples that did not fail; its interval "
        f"is {' and '.join(filter(None, accuracy))}.",
        "A condition is compared with none over the problems answered under both. The difference has a paired "
        f"bootstrap interval ({_draws()}, with half an imagined problem on either side of the mean and percentiles as "
        f"far out as Student's t asks); p comes from {' and '.join(filter(None, tests))}, adjusted by Holm over every "
        "comparison of the table: all models, conditions, temperatures and numbers of samples. A change is called "
        f"significant where the adjusted p is below {ALPHA:g}, and nowhere else. Beside it stands the smallest "
        f"difference that so many problems show with {power:.0%} power at p < {ALPHA:g} of a single comparison.",
    ]
    if run.noise is not None:
        said.append(_noise(run))
    if max(counts) > 1:
        wanted = run.study.generation.k or tuple(k for k in USUAL_K if k <= max(counts))
        those = listed([str(k) for k in wanted])
        said.append(
            f"pass@k is the unbiased estimate 1 - C(n - c, k) / C(n, k), for k = {those}. It is over the problems of "
            "which at least k samples were judged under every condition; a condition without any is left aside."
        )
    return said


def _noise(run: Run) -> str:
    ways = listed(list(dict.fromkeys(way_of(run[model]) for model in run.models)), "or")
    return (
        f"Prompts without filler were answered twice (the second time: {ways}). Verdicts that differ between the two "
        "are flips by rounding, those that differ between the first and a condition flips by filler. Their difference "
        f"has a paired bootstrap interval over problems ({_draws()}); p comes from flipping the signs of the "
        "problems' differences, which for one sample a problem is the exact McNemar test, adjusted by Holm over the "
        "conditions and ways of drawing of a model. The second answers are in no comparison of accuracy."
    )


def _facts(run: Run, table: Sequence[Accuracy]) -> Facts:
    facts: Facts = []
    if run.has_answers:
        family = sum(row.against is not None and isfinite(row.against.p) for row in table)
        facts.append(("Accuracy comparisons in the family of Holm", f"{family:,}"))
    if run.study.probes.activations and run.has_attention:
        facts.append(("Family of Holm for activations", _layers(run)))
    return [fact for fact in facts if fact[1]]


def _layers(run: Run) -> str:
    found = {len(eps) for model in run.models if (eps := (run[model].facts.get("calibration") or {}).get("eps"))}
    return listed([counted(number, "layer") for number in sorted(found)], "or") if found else ""


def seeds(run: Run) -> Section:
    study, drawn = run.study, _drawn(run.study)
    text = "No filler, place, intervention or answer of this study is drawn at random."
    if drawn:
        text = (
            f"The study's seed is behind {listed(drawn)}; each draw depends on it and on names (of condition, problem "
            "or token ids), never on the order of work."
        )
    facts: Facts = [("Seed of the study", str(study.seed))]
    if study.problems.source == "builtin":
        facts.append(("Seed of the built-in problems", str(study.problems.seed)))
    if run.has_attention:
        facts.append(("Seed of split halves", str(default(split_half, "seed"))))
    if study.probes.activations:
        facts.append(("Seed of flipped signs of activations", str(SEED)))
    if run.has_answers:
        facts.append(("Seed of resampled and permuted accuracies", str(RESAMPLED)))
    return Section("Seeds", [text], facts)


def _drawn(study: Study) -> list[str]:
    """What of a study is left to chance."""
    fillers = [one for one in study.conditions if one.has_filler]
    chances = {
        "fillers drawn at random": any(one.kind in ("sentence", "characters") for one in fillers),
        "places drawn at random": any(one.position == "random" for one in fillers),
        "interventions that draw": any(isinstance(one.intervention, Redistribution) for one in study.conditions),
        "sampled answers": study.generation is not None and max(study.generation.temperature) > 0,
    }
    return [name for name, is_so in chances.items() if is_so]
