"""What was measured, in words: attention, the affine picture, activations, where answers look, and answers.

Says what the code does with the settings of the run at hand; longer definitions are in docs/method.md.
"""

from __future__ import annotations

from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.answers.grading.grade import Grader
from fillerscope.report.sections import Facts, Section, counted, default, listed
from fillerscope.study.generation import VLLM, GenerationSpec
from fillerscope.study.study import AttentionProbe

QUERIES = "all (every position), original (every position that is not filler) and last (the prompt's last position)"


def attention(run: Run) -> Section | None:
    probe = run.study.probes.attention
    if probe is None:
        return None
    received = (
        "The attention that a token receives is, in one layer and head, the mean of the attention weights that later "
        f"positions{' and its own' if probe.diagonal else ''} give it, over the positions that vote; where none votes, "
        f"the value is missing. Three choices of voters are collected in one pass: {QUERIES}. Comparisons between "
        "conditions use original, so that the same rows vote in both, unless a sentence or caption says otherwise. "
        "All rows of all heads and layers enter the sums; no matrix of weights is kept and none is sampled."
    )
    pairs = (
        "A prompt with filler holds the same original tokens as the prompt without, id by id, so each is compared with "
        "itself: the paired drop is the geometric mean over problems of the ratio of what original tokens receive "
        "under a condition and under none. Filler mass is the attention that original positions behind the filler give "
        "to all of it."
    )
    return Section("Attention", [received, pairs], _attention_facts(run, probe))


def _attention_facts(run: Run, probe: AttentionProbe) -> Facts:
    shared = "run once for prompts of a condition that are measured together, but under ARM and its controls"
    shared = shared if run.study.batch.prefix == "share" else "run with every prompt"
    return [
        ("Diagonal", "included" if probe.diagonal else "left out"),
        ("First token", "left out of head summaries" if probe.skip_first else "kept in head summaries"),
        ("Positions kept in profiles", f"the first {probe.positions:,}; head summaries use all"),
        ("Common beginning of prompts", shared),
    ]


def affine(run: Run) -> Section | None:
    if not run.study.probes.affine:
        return None
    text = (
        "For each problem, layer and head, the attention outputs o' under a condition (before the output projection, "
        "on the tokens of question and tail) are set against the outputs o of the same tokens under none as "
        "o' = lambda * o + b. lambda is sum <o', o> / sum <o, o>, b the mean of o' - lambda * o; explained is the "
        "share of the variation of o' that lambda and b account for, direction is |b| over the mean length of "
        "o' - lambda * o, and consistency is |mean of b| over the mean of |b| across problems."
    )
    return Section("Affine picture", [text])


def activations(run: Run) -> Section | None:
    probe = run.study.probes.activations
    if probe is None:
        return None
    text = (
        "Activations a are the outputs of each layer's MLP nonlinearity on the tokens of question and tail, the same "
        "tokens under every condition. Near zero means |a| < eps with eps = 1.4826 * MAD(|a|) * c; eps and the median "
        "of |a| were taken for each layer from the first prompts without filler and then kept for all conditions. "
        "Shares, mean, variance, L1, L2 and the Gini coefficient of |a| are taken for each problem, layer and class of "
        "tokens; a token belongs to the first class whose pattern matches its text."
    )
    facts: Facts = [("c", f"{probe.c:g}")]
    facts += [(f"eps, {one.label}", told) for one in run.model_runs if (told := _thresholds(one))]
    facts += [(f"Tokens of class {name}", pattern) for name, pattern in probe.classes.items()]
    return Section("Activations", [text], facts)


def _thresholds(run: ModelRun) -> str:
    found = run.facts.get("calibration") or {}
    eps = found.get("eps")
    if not eps:
        return ""
    source = ""
    if {"tokens", "problems"} <= found.keys():
        source = f", from {counted(found['tokens'], 'token')} of {counted(found['problems'], 'problem')}"
    return f"{eps[0]:.3g} in layer 1, {min(eps):.3g} to {max(eps):.3g} over {counted(len(eps), 'layer')}{source}"


def answering(run: Run) -> Section | None:
    if not run.study.probes.answering:
        return None
    text = (
        "After the first answer to each prompt was written, prompt and answer were read once more with the answer's "
        "tokens (the end of turn left out) as the positions that vote; interventions act as they did while it was "
        "written. Each condition is read with its own answer, so a difference between conditions contains that of "
        "their answers. A problem without an answer under some condition is left out under all."
    )
    return Section("Where answers attend", [text])


def answers(run: Run) -> Section | None:
    spec = run.study.generation
    if spec is None:
        return None
    limit = default(Grader, "limit")
    extraction = (
        "The answer is the last complete \\boxed{}; otherwise what follows the last answer phrase; otherwise the last "
        "number or formula of the last concluding sentence; otherwise a number after = that ends the text; otherwise "
        "there is none. Of a text that the limit cut off, only boxes and answer phrases in whole sentences count."
    )
    grading = (
        "Answers are compared with the reference as text, as whole numbers, or as mathematics by math-verify, in a "
        f"process of its own that is ended after {limit:g} s of CPU time. Verdicts are right, wrong, no answer, cut "
        "off and failed; what failed is left out of every rate and counted beside it, and all other verdicts but right "
        "count as not right."
    )
    return Section("Answers", [_drawing(run, spec), extraction, grading], _answer_facts(spec))


def _drawing(run: Run, spec: GenerationSpec) -> str:
    served = [run.label(model.name) for model in run.study.models if model.endpoint]
    same = ", with the prompts whose attention is measured, token for token" if run.has_attention else ""
    ways = []
    if 0 in spec.temperature:
        ways.append("At temperature 0 the likeliest token is taken.")
    if max(spec.temperature) > 0:
        cut = f", cut to the smallest set of tokens whose share reaches {spec.top_p:g}" if spec.top_p < 1 else ""
        ways.append(
            f"Above 0 a token is drawn from the softmax of the logits over the temperature{cut}; the random numbers "
            "come from the study's seed, the problem, the temperature and the number of the sample, the same under "
            "every condition."
        )
    if served:
        ways.append(
            f"{listed(served)} answered from a server, which was asked for these settings and may apply others of its "
            "own."
        )
    if spec.engine == VLLM:
        ways.append("vLLM wrote the answers of every condition, with the model in the same dtype as here.")
    return (
        f"Every condition answers the same problems{same}. {' '.join(ways)} An answer ends with the model's "
        f"end-of-turn token, after {spec.max_tokens:,} tokens, or where the model's context is full."
    )


def _answer_facts(spec: GenerationSpec) -> Facts:
    temperatures = listed([f"{value:g}" for value in spec.temperature])
    facts: Facts = [("Temperature", temperatures)]
    if max(spec.temperature) > 0:
        facts += [("Samples a problem", listed([str(value) for value in spec.samples])), ("top_p", f"{spec.top_p:g}")]
    facts.append(("Longest answer", f"{spec.max_tokens:,} tokens"))
    if spec.k:
        facts.append(("pass@k for k", listed([str(value) for value in spec.k])))
    return facts
