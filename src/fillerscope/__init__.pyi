"""The public names of fillerscope, each with the module that it is loaded from."""

from .api import Run, attention_matrix, attention_profile, merge, open_run, run, try_question
from .arm.hooks import arm
from .errors import FillerscopeError
from .measure.planning.plan import plan
from .measure.run_part import run_part
from .models.loading import load_model
from .study.study import Study

__version__: str

__all__ = [
    "FillerscopeError",
    "Run",
    "Study",
    "arm",
    "attention_matrix",
    "attention_profile",
    "load_model",
    "merge",
    "open_run",
    "plan",
    "run",
    "run_part",
    "try_question",
]
