"""The identity of a run: everything that can change one of its numbers, and nothing else."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import TYPE_CHECKING

from fillerscope import __version__
from fillerscope.files import Json
from fillerscope.models.optional_packages import optional_packages
from fillerscope.models.quantised import LIBRARIES as ROUNDING
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.tensor_parallel import processes
from fillerscope.problems.sources import Problem, problems_digest
from fillerscope.study.generation import VLLM
from fillerscope.study.study import ALL_GPUS, ModelSpec, Study

if TYPE_CHECKING:
    from fillerscope.models.in_memory import ModelSource

# Code that decides no number of a run, by the reason. All other code is hashed, so that nothing can be forgotten; this
# much is not, so that a mended download or page leaves runs as they are.
NO_NUMBERS = {
    "shows what is stored, or takes what somebody asks for": ("analysis", "api.py", "cli", "figures", "report"),
    "says something": ("display.py", "errors.py", "models/quiet.py", "progress.py"),
    "finds and fetches weights, which the id names by their digest": (
        "models/cache.py", "models/catalogue.py", "models/fetch.py", "models/hub.py",
    ),
    "finds runs, says how far they are, and takes files, whose sums are checked, from place to place": (
        "store/addresses.py", "store/find_run.py", "store/job_record.py", "store/live.py", "store/lock.py",
        "store/remote.py", "store/remote_facts.py", "store/run_folder.py", "store/status.py",
    ),
}  # fmt: skip
SUFFIXES = (".py", ".txt")  # the studies that are shipped are not code: a run's own study is in its identity
PRECISION = (
    "get_float32_matmul_precision", "backends.fp32_precision", "backends.cuda.matmul.fp32_precision",
    "backends.mkldnn.matmul.fp32_precision", "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cudnn.allow_tf32", "backends.cudnn.conv.fp32_precision", "backends.mkldnn.conv.fp32_precision",
)  # fmt: skip
ENVIRONMENT = (  # by which libraries below torch compute in fewer digits; torch's own settings do not show them
    "CUBLAS_EMULATE_SINGLE_PRECISION", "DNNL_DEFAULT_FPMATH_MODE", "HIPBLASLT_ALLOW_TF32", "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE", "PYTORCH_MPS_FAST_MATH",
)  # fmt: skip
# Another version may grade differently. Which characters are letters or signs is Unicode's to say, in Python's version.
GRADING = ("math-verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4-python3-runtime", "regex")


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
    # In one entry: a run that has more of them, or fewer, holds the numbers of no other.
    optional = ", ".join(f"{name} {one}" for name, one in optional_packages().items())
    known = {name: version(name) for name in names} | {"torch's precision": _precision(), "optional packages": optional}
    return known | ({"Unicode": unicodedata.unidata_version} if study.generation else {})


def _precision() -> str:
    """The settings by which torch rounds products: whoever imports it may change them."""
    import torch

    settings = [f"{name.removeprefix('backends.')} {_value(torch, name)}" for name in PRECISION]
    return ", ".join([*settings, *(f"{name} {os.environ[name]}" for name in ENVIRONMENT if name in os.environ)])


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
    yield from _files_in(root, "", {name for names in NO_NUMBERS.values() for name in names})


def _files_in(folder: Traversable, place: str, left_out: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{place}{entry.name}"
        if name in left_out:
            continue
        if entry.is_dir():
            yield from _files_in(entry, f"{name}/", left_out)
        elif name.endswith(SUFFIXES):
            yield name, entry.read_bytes()
