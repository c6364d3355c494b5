"""The names and types of everything in a run folder: files, arrays, columns, records. No other module spells them.

    manifest.json, study.json, problems.parquet
    shards/MODEL/00000.safetensors            arrays and records of one group of problems, all conditions
    merged/MODEL.safetensors                  all shards of a model, merged in shard order
    lookback/MODEL/00000.safetensors          the same with the answer's tokens as query rows,
    lookback/MODEL.safetensors                and merged
    answers/MODEL/00000.parquet               a row for each answer to one group of problems
    again[-DTYPE]/MODEL/00000.parquet         answers without filler a second time: the noise floor

An array is named `condition/quantity`, and one of several that belong together `condition/quantity/part`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict

from numpy.typing import NDArray

from fillerscope.files import Json

# The number of the format of run folders. 4 had all of its records in the headers of files, 3 no digest in its
# manifest, 2 token ids of answers as text, 1 no m3 in moments.
FORMAT = 5
READABLE = (2, 3, 4, 5)
SEALED = 4  # from this format on the manifest holds a digest of all that it says
MANIFEST, STUDY, PROBLEMS = FILES = ("manifest.json", "study.json", "problems.parquet")
FOLDERS = ("shards", "merged", "lookback", "answers", "again")  # what the names of its folders begin with
JOB = "job.json"  # in the folder of a part: who writes it; not listed in the manifest
LARGEST_JOB = 1 << 16  # bytes of that
PARTS_FOLDER = "parts"  # of a run that several jobs measure: a folder for each of them, until they are merged
MOMENTS = ("count", "mean", "m2", "m3")  # the parts of a quantity kept as moments over problems, in order

# Quantities of every problem, layer and head under a condition. Definitions are in docs/method.md.
METRICS = (
    "received_original",  # mean over original tokens, the first left out
    "received_before",  # the same over those before the filler (without filler: before the question)
    "received_after",  # and over those after it
    "received_filler",
    "received_first",  # the token at position 0: the sink
    "peak",  # the highest value among original tokens, the first left out
    "spread",  # standard deviation over the same tokens
    "kurtosis",  # excess kurtosis over the same tokens
    "entropy",  # of query rows, in nats
    "filler_mass",  # mean over original query rows after the filler of their weight on the filler
)
SINK_MASS = "sink_mass"  # mean over query rows of what a learned sink takes; apart, since few models have one
FILLER_MASS_ROWS = (1, 1, 2)  # groups of queries: past the filler every row is original, so `all` is as `original`
# The attention output o' under a condition as lambda * o + b of that without.
AFFINE_METRICS = (
    "lambda_fit",
    "explained",  # share of the variation of o' that lambda * o + b has
    "direction",  # |b| over the mean of |o' - lambda * o|: 1 where the shift points one way for every token
    "bias",  # |b|
    "output",  # mean of |o|
    "lambda_centred",  # the slope where an intercept is fitted with it
)
# Of every problem, class of tokens and layer: the output of the MLP's nonlinearity.
ACTIVATION_METRICS = (
    "tokens",
    "near_zero",  # share below the threshold that was frozen without filler
    "below_median",  # share below the median that was frozen without filler: relative sparsity
    "mean",
    "variance",
    "l1",  # per token
    "l2",
    "gini",  # of sizes
)


class Quantity(Enum):
    """What is stored of a condition: name, axes, dtype, and how shards of it are merged."""

    WHOLE = "whole", "query layer head position", "<f8", "moments"
    ALIGNED = "aligned", "query layer head position", "<f8", "moments"
    DIFFERENCE = "difference", "query layer head position", "<f8", "moments"
    LOG_RATIO = "logratio", "query layer head position", "<f8", "moments"
    SAME_ODDS = "odds", "query layer head position", "<f8", "moments"
    SAME_ODDS_HEADS = "odds_heads", "problem query layer head", "<f4", "problems"
    HEADS = "heads", "problem metric query layer head", "<f4", "problems"
    PEAK_AT = "peak_at", "problem query layer head", "<i4", "problems"
    SINKS = "sinks", "problem query layer head", "<f4", "problems"
    AFFINE = "affine", "problem metric layer head", "<f4", "problems"
    BIAS = "bias", "layer head dim", "<f8", "moments"
    ACTIVATIONS = "activations", "problem metric class layer", "<f4", "problems"
    HISTOGRAM = "histogram", "layer class bin", "<i8", "counts"

    def __init__(self, label: str, axes: str, dtype: str, merged: Literal["moments", "counts", "problems"]) -> None:
        self.label, self.axes, self.dtype, self.merged = label, tuple(axes.split()), dtype, merged

    def key(self, condition: str, part: str = "") -> str:
        """The name of an array."""
        return "/".join(filter(None, (condition, self.label, part)))

    def keys(self, condition: str) -> tuple[str, ...]:
        """The names of all arrays of this quantity: one, or one for each part."""
        return tuple(self.key(condition, part) for part in PARTS[self.merged])


PARTS: Mapping[str, tuple[str, ...]] = {"moments": MOMENTS, "counts": ("counts",), "problems": ("",)}
VIEWS: Mapping[str, Quantity] = {
    quantity.label: quantity for quantity in (Quantity.WHOLE, Quantity.ALIGNED, Quantity.DIFFERENCE, Quantity.LOG_RATIO)
}  # of a profile: the whole prompt, aligned to the prompt without filler, and compared with it problem by problem
PAIRED_VIEWS = (Quantity.DIFFERENCE.label, Quantity.LOG_RATIO.label)
_QUANTITIES = {quantity.label: quantity for quantity in Quantity}


@dataclass(frozen=True)
class ArrayName:
    """The name of a stored array, in its parts."""

    condition: str
    quantity: Quantity
    part: str = ""

    @classmethod
    def parse(cls, key: str) -> ArrayName:
        condition, label, *part = key.split("/")
        return cls(condition, _QUANTITIES[label], *part)


# The columns of answer tables and of the table of problems, by the names of pyarrow's types.
ANSWER_COLUMNS: Mapping[str, str] = {
    "number": "int64", "id": "string", "condition": "string", "temperature": "float64", "sample": "int64",
    "prompt_tokens": "int64", "tokens": "int64", "finish": "string", "verdict": "string", "extracted": "string",
    "note": "string", "text": "string", "ids": "list<int32>",
}  # fmt: skip
PROBLEM_COLUMNS: Mapping[str, str] = {"id": "string", "question": "string", "answer": "string", "meta": "string"}
COLUMN_TYPES: Mapping[str, str] = {**ANSWER_COLUMNS, **PROBLEM_COLUMNS}
Columns = dict[str, list[Any]]  # a table: its columns by name
Array = NDArray[Any]  # of one of the dtypes above


def upgraded(columns: Columns) -> Columns:
    """A table of any readable format in the types of this one: format 2 wrote token ids as text."""
    if "ids" not in columns:
        return columns
    ids = [[int(token) for token in one.split()] if isinstance(one, str) else one for one in columns["ids"]]
    return columns | {"ids": ids}


class PromptRecord(TypedDict):
    """A prompt as it was measured: token ids, the span of every token, and positions left out before the question."""

    ids: list[int]
    spans: list[int]
    gap: NotRequired[int]


class ProblemRecord(TypedDict):
    """What is stored of a problem beside its arrays; a problem that failed has an error and nothing more."""

    number: int
    id: str
    status: Literal["ok", "failed"]
    error: NotRequired[str]
    tokens: NotRequired[list[str]]  # texts of the prompt without filler
    prompts: NotRequired[dict[str, PromptRecord]]  # by condition


class AnsweredProblem(TypedDict):
    """A problem that was to be answered, as the table of problems holds it."""

    id: str
    question: str
    answer: str
    meta: dict[str, Any]


class FileEntry(TypedDict):
    bytes: int
    sha256: str


class ModelFacts(TypedDict, total=False):
    """What was noted about a model while it was measured. Checks are the records of their own classes."""

    label: str
    template: str
    tokenizer: str  # where it splits texts otherwise than its file says
    batch_tokens: int
    selfcheck: Json
    rowcheck: Json
    answercheck: Json
    recheck: Json
    calibration: Json


class Manifest(TypedDict):
    """What a run is, what it was made with, and the size and checksum of every file."""

    format: int
    identity: Json
    files: dict[str, FileEntry]
    writer: NotRequired[str]  # a mark of the process that writes to an object store, as long as it does
    replacing: NotRequired[dict[str, FileEntry]]  # files that are about to replace listed ones: either may be there
    digest: NotRequired[str]  # of all the rest
    environment: NotRequired[Json]
    models: NotRequired[dict[str, ModelFacts]]
    problems: NotRequired[int]  # how many there will be
    part: NotRequired[str]  # such as 3/16, where a job measures only this part of the run
    parts: NotRequired[Json]  # what a run merged of several parts cannot say in one value: machines that differ
    data: NotRequired[Json]  # columns that were recognised, how answers are written, rows read and skipped


def shard_name(model: str, index: int) -> str:
    return f"shards/{slug(model)}/{index:05d}.safetensors"


def merged_name(model: str) -> str:
    return f"merged/{slug(model)}.safetensors"


def answers_name(model: str, index: int) -> str:
    return f"answers/{slug(model)}/{index:05d}.parquet"


def repeated_answers_name(model: str, index: int, dtype: str | None = None) -> str:
    """Answers without filler a second time; `dtype` where they were computed in another one."""
    return f"again{f'-{dtype}' if dtype else ''}/{slug(model)}/{index:05d}.parquet"


def answer_attention_name(model: str, index: int | None = None) -> str:
    """Attention of answers: to one group of problems, or merged."""
    return f"lookback/{slug(model)}" + (".safetensors" if index is None else f"/{index:05d}.safetensors")


def made_of(name: str) -> list[str]:
    """The files that are made of a file of a shard, and hold other numbers than it once it is replaced."""
    match = re.fullmatch(r"(shards|answers|lookback)/([^/]+)/(\d+)\.(?:safetensors|parquet)", name)
    if match is None:
        return []
    folder, model, shard = match.groups()
    if folder == "shards":
        return [f"merged/{model}.safetensors"]
    merged = f"lookback/{model}.safetensors"
    return [merged] if folder == "lookback" else [f"lookback/{model}/{shard}.safetensors", merged]


def slug(name: str) -> str:
    """A file name for a model: readable, and nearly always another one for every other name. Runs refuse the rest."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._")[-80:]
    return safe if safe == name else f"{safe or 'model'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
