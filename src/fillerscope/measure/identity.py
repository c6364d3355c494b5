"""The identity of a run: everything that can change one of its numbers, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import TYPE_CHECKING

from fillerscope import __version__
from fillerscope.files import Json
from fillerscope.models.quantised import LIBRARIES as ROUNDING
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.tensor_parallel import processes
from fillerscope.problems.sources import Problem, problems_digest
from fillerscope.study.generation import VLLM
from fillerscope.study.study import ALL_GPUS, ModelSpec, Study

if TYPE_CHECKING:
    from fillerscope.models.in_memory import ModelSource

# Code that can change a number: packages as a whole, so that a new file in them cannot be forgotten. Of `models` and
# `store` only the files named here: how weights are fetched and files are written changes no number.
PACKAGES = ("study", "problems", "prompts", "arm", "capture", "answers", "measure")
FILES = (
    "models/attention.py", "models/description.py", "models/in_memory.py", "models/loading.py", "models/positions.py",
    "models/quantised.py", "models/spread.py", "models/structure.py", "models/tensor_parallel.py",
    "models/untrained.py", "store/merge.py", "store/moments.py", "store/schema.py",
)  # fmt: skip
SUFFIXES = (".py", ".txt")  # the studies that are shipped are not code: a run's own study is in its identity
PRECISION = (
    "get_float32_matmul_precision", "backends.fp32_precision", "backends.cuda.matmul.fp32_precision",
    "backends.mkldnn.matmul.fp32_precision", "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "backends.cuda.matmul.allow_fp16_accumulation",
)  # fmt: skip
GRADING = ("math-verify", "latex2sympy2_extended", "sympy")  # another version may grade differently


def identify(study: Study, problems: list[Problem], folders: Mapping[str, ModelSource]) -> Json:
    """The identity of a study's run: study, problems, models, device, code and libraries."""
    from fillerscope.models.borrowing import refuse_autocast
    from fillerscope.models.loading import choose_device, choose_dtype

    refuse_autocast()
    device = choose_device(study.device)
    measured = study.measured()
    del measured["problems"], measured["device"], measured["models"]
    return {
        "study": measured,
        "problems": problems_digest(problems),
        "models": [
            {
                "name": spec.name,
                "digest": folders[spec.name].digest,
                "dtype": choose_dtype(spec.dtype, device),
                "template": study.template_of(spec),
                "endpoint": _answered_by(spec),
            }
            | ({} if isinstance(folders[spec.name], ModelFolder) else {"in_memory": True})
            for spec in study.models
        ],
        "device": device.split(":")[0],
        "code": code_version(),
        "libraries": libraries(study),
    } | _sharing(device)


def _sharing(device: str) -> Json:
    """How a model is shared by processes or spread over devices, which rounds otherwise; nothing where it is not."""
    if processes() > 1:
        return {"tensor parallel": processes()}
    return {"spread": True} if device == ALL_GPUS else {}


def libraries(study: Study) -> dict[str, str]:
    """The versions of the libraries that compute the numbers of a study, and how torch rounds."""
    judges = GRADING if study.generation else ()
    rounding = {ROUNDING[spec.dtype] for spec in study.models if spec.dtype in ROUNDING}
    engine = (VLLM,) if study.generation and study.generation.engine == VLLM else ()
    names = ("torch", "transformers", "tokenizers", "jinja2", "numpy", *judges, *sorted(rounding), *engine)
    return {name: version(name) for name in names} | {"torch's precision": _precision()}


def _precision() -> str:
    """The settings by which torch rounds products: whoever imports it may change them."""
    import torch

    return ", ".join(f"{name.rpartition('.')[2]} {_value(torch, name)}" for name in PRECISION)


def _value(module: ModuleType, name: str) -> object:
    try:
        value = reduce(getattr, name.split("."), module)
        return value() if callable(value) else value
    except (AttributeError, RuntimeError):  # of another version, or set in two ways that contradict each other
        return "unknown"


def _answered_by(spec: ModelSpec) -> Json | None:
    """The endpoint that answers, without settings that cannot change an answer, such as timeouts."""
    return spec.endpoint.model_dump(include={"url", "model", "prompt"}) if spec.endpoint else None


def code_version() -> str:
    """The version of fillerscope and a digest of the code that measures."""
    digest = hashlib.sha256()
    for name, content in sorted(measuring_code(files("fillerscope"))):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:12]}"


def measuring_code(root: Traversable) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files that can change a number."""
    yield from ((name, root.joinpath(name).read_bytes()) for name in FILES)
    for package in PACKAGES:
        yield from _files_in(root.joinpath(package), package)


def _files_in(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_in(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(SUFFIXES):
            yield f"{name}/{entry.name}", entry.read_bytes()
