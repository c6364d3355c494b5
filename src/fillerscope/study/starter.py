"""The text of a study to start from: sensible settings, and others as comments that are true when uncommented.

A line that begins with `#` and no space is a setting; `# ` begins a remark. Each such line alone, and all together,
give a study that `Study.load` takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fillerscope.study.data_sets import BUILTIN, Role
from fillerscope.study.json_schema import schema_file
from fillerscope.study.reference import as_yaml

MAX_TOKENS = 512


@dataclass(frozen=True)
class Starter:
    """What a new study is about. `answers`: whether they are asked for; None where the data has none to grade by."""

    file: str
    model: str
    source: str = BUILTIN
    fields: Mapping[Role, str] = field(default_factory=dict)
    answer_form: str = ""  # where one was recognised
    limit: int | None = None
    answers: bool | None = True

    @property
    def name(self) -> str:
        """The name of the study, from that of its file."""
        plain = re.sub("[^a-z0-9_.-]+", "-", Path(self.file).stem.lower())
        return plain.strip("-_.")[:60] or "my-study"

    def text(self) -> str:
        """The study as YAML."""
        parts = (self._head(), self._models(), self._problems(), self._conditions(), self._measures(), self._answers())
        return "\n".join(line for part in (*parts, REST) for line in (*part, "")).rstrip() + "\n"

    def _head(self) -> Iterator[str]:
        yield f"# yaml-language-server: $schema={_schema()}"
        yield "# What to measure, for fillerscope."
        yield f"#   fillerscope check {self.file}   shows what it asks for, without running it"
        yield f"#   fillerscope run {self.file}     runs it; once more to resume"
        yield "#   fillerscope study   explains every key"
        yield "# Lines with # and no space after it are settings to choose from: take the # away."
        yield ""
        yield f"name: {as_yaml(self.name)} # what the run folder is called"

    def _models(self) -> Iterator[str]:
        yield "models:"
        yield f"  - {as_yaml(self.model)} # a catalogue name (fillerscope models), hub id, folder or .gguf file"
        yield "  #- {name: Qwen/Qwen2.5-Math-1.5B, dtype: bfloat16} # one more, with settings of its own"

    def _problems(self) -> Iterator[str]:
        yield "problems:"
        yield f"  source: {as_yaml(self.source)} # a file, gsm8k, math500, aime24, aime25, hub:owner/name or builtin"
        if self.limit is None:
            yield "  #limit: 100 # the first so many"
        else:
            yield f"  limit: {self.limit} # the first so many; without this line all"
        if self.source == BUILTIN:
            yield "  difficulty: [0, 1] # 0, for the smallest models, to 3"
            yield "  #seed: 1 # other problems of the same kind"
        else:
            yield f"  fields: {as_yaml(dict(self.fields))} # which column is what"
        if self.answer_form:
            yield f"  answer_form: {self.answer_form} # {FORMS[self.answer_form]}"
        yield ""
        yield '#prompt: {system: "Put your final answer within \\\\boxed{}."} # in place of the usual system prompt'

    def _conditions(self) -> Iterator[str]:
        yield from CONDITIONS

    def _measures(self) -> Iterator[str]:
        yield "references:"
        yield "  twin: 3 # untrained models: without them no effect on attention is claimed"
        yield ""
        yield "probes:"
        yield "  affine: on # does filler scale attention outputs and shift them in one direction?"
        yield "  activations: on # are fewer MLP activations near zero?"
        if self.answers:
            yield "  #answering: on # where does the answer attend?"

    def _answers(self) -> Iterator[str]:
        if self.answers:
            yield "generation:"
            yield f"  max_tokens: {MAX_TOKENS} # raise it where many answers are truncated"
            yield "  #temperature: 0.8 # 0, the default, is greedy"
            yield "  #noise: on # how many verdicts does rounding alone change?"
            yield "  #exact: on # the same to the bit whatever is answered beside it; slower"
        elif self.answers is None:
            yield "# Nothing is answered: not every problem has a reference answer to grade by."
        else:
            yield f"#generation: {{max_tokens: {MAX_TOKENS}}} # answer every problem, and compare accuracies"


FORMS = {
    "whole": "all of the answer's column",
    "hashes": "the answer follows #### at the end of its column",
    "box": "the answer is in the last \\boxed{} of its column",
}
CONDITIONS = (
    "conditions:",
    "  - none # the prompt as it is: the baseline of every comparison, always first",
    '  - mless # " /" 55 times, as published',
    "  - random # control: sentences of the same length",
    "  - positions # control: no filler, positions moved as if there were",
    '  #- mful # " he" 55 times',
    "  #- knockout # the filler is there, and no later token sees it",
    '  #- {name: dots, kind: repeat, text: " .", count: 55} # a filler of your own: an exact number of tokens',
    '  #- {name: length, kind: repeat, text: " /", count: [10, 25, 100]} # a list is a sweep: a condition for each',
    '  #- {name: late, kind: repeat, text: " /", count: 55, position: end} # somewhere else',
)
REST = (
    "#seed: 1 # of drawn sentences, places and answers",
    "#device: cpu # auto, the default, takes a GPU where there is one",
    "#figures: [{name: heads}, {name: depth}] # these alone; by default all",
)  # fmt: skip


def _schema() -> str:
    """Where editors find the schema: in this installation."""
    file = Path(str(schema_file()))
    return file.as_uri() if file.is_absolute() else str(file)
