"""One problem of a finished run measured again: a run keeps sums over problems, and somebody wants to see one alone.

The prompts are those that the run recorded, token for token, so neither the file of problems nor the way prompts are
made can have changed since; the weights are compared by their digest, and what comes out with what the run kept of
the problem. Nothing is downloaded, converted or written, and torch is loaded only to measure: a server may import this.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.display import command
from fillerscope.errors import CaptureError, FigureError, FillerscopeError, ModelError, StoreError
from fillerscope.files import Json, digest_of
from fillerscope.models.resolve import ModelFolder, find, resolve_here
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import FILLER, token_texts
from fillerscope.report.explorer.recorded_prompts import prepared, recorded, refuse_unfit
from fillerscope.store.array_file import Part
from fillerscope.store.schema import METRICS, Array, ProblemRecord, Quantity, merged_name
from fillerscope.study.study import ALL_GPUS, QUERIES, Study

if TYPE_CHECKING:
    from fillerscope.capture.head_matrix import HeadMatrix
    from fillerscope.models.loading import LoadedModel

PACKAGES = ("torch", "transformers")
KEPT = 16  # problems that are remembered
EXACT = 1e-4  # of the largest value of its kind: what neighbours in a pass change by rounding is far below
COMPARED = tuple(metric for metric in METRICS if metric != "kurtosis")  # which magnifies rounding in even heads
NOTHING = 1e-6  # of a row's attention: below this a difference says nothing


@dataclass(frozen=True)
class Remeasured:
    """`part` is a shard of one problem, as the runner makes them, with its attention alone."""

    part: Part
    agreement: float  # the largest difference from the run's head summaries, as a share of the largest of its kind
    note: str  # what was not as it was when the run was made; empty where all was


class Remeasurer:
    """Measures problems one at a time, whoever asks. Keeps the last model in memory, and the last few problems."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._model: tuple[tuple[str, str, str], LoadedModel] | None = None
        self._kept: OrderedDict[tuple[str, str, int], Remeasured] = OrderedDict()
        self._keeping, self._measuring = Lock(), Lock()

    def at_hand(self, run: ModelRun) -> str:
        """Why a problem cannot be measured here and what to do, in a sentence; empty where it can. Quick: what takes
        a reading of the weights is left to `measure`."""
        try:
            _refuse_unready(run)
        except (FillerscopeError, OSError) as error:
            return str(error)
        return ""

    def differs(self, run: StoredRun) -> str:
        """What is not as it was when the run was made; empty where nothing is. Loads torch."""
        return _not_installed() or "; ".join(_differences(run.store.manifest["identity"]))

    def measure(self, run: ModelRun, number: int) -> Remeasured:
        """The problem with this number in the study, under all conditions. Waits for whoever is measuring."""
        key = (digest_of([str(run.path.resolve()), run.store.manifest]), run.name, number)  # a copy may differ
        if (found := self._recall(key)) is not None:
            return found
        with self._measuring:
            found = self._recall(key)  # it may be what was waited for
            return found if found is not None else self._keep(key, self._measure(run, number))

    def _recall(self, key: tuple[str, str, int]) -> Remeasured | None:
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: tuple[str, str, int], found: Remeasured) -> Remeasured:
        with self._keeping:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def matrix(self, run: ModelRun, number: int, condition: str, layer: int, head: int) -> tuple[HeadMatrix, str]:
        """The weights of one head, queries against keys, on the prompt of a problem under a condition; and how far
        they agree with the run."""
        from fillerscope.capture.head_matrix import head_matrix, refuse_long
        from fillerscope.measure.shard import text_under

        change = run.condition(condition)
        _refuse_unready(run)
        record = recorded(run, number)
        refuse_long(len(record["prompts"][condition]["ids"]))  # before the model is loaded
        with self._measuring:
            loaded = self._model_of(run)
            refuse_unfit(record, loaded)
            text = text_under(_attention_alone(run.study), prepared(record), change)
            result = head_matrix(loaded.model, text, layer, head)
        tokens = tuple(token_texts(loaded.tokenizer, text.ids))
        return replace(result, tokens=tokens), self._matrix_note(run, record, condition, result)

    def _matrix_note(self, run: ModelRun, record: ProblemRecord, condition: str, matrix: HeadMatrix) -> str:
        """How far the matrix agrees with the run; an error where it should and does not."""
        agreement, differs = _matrix_agreement(run, record, condition, matrix), self.differs(run)
        if agreement > EXACT and not differs and _setting(run)[1] == "float32":
            raise CaptureError(
                f"problem {record['id']} measured again differs from the run by {agreement:.0e} ({EXACT:.0e} is "
                f"allowed): see whether the run is sound with `{command('verify', run.path)}`"
            )
        told = f"its column means agree with the stored run to {agreement:.1g}"
        return f"{told} ({differs})." if differs else f"{told}."

    def _measure(self, run: ModelRun, number: int) -> Remeasured:
        _refuse_unready(run)
        record = recorded(run, number)
        loaded = self._model_of(run)
        refuse_unfit(record, loaded)
        part = _measured(run, record, loaded, self._progress or SILENT)
        return _compared(run, number, part, self.differs(run), loaded.dtype)

    def _model_of(self, run: ModelRun) -> LoadedModel:
        """The model that the run measured, in memory; refused where the weights here are others."""
        progress = self._progress or SILENT
        folder = resolve_here(run.name, progress)
        _refuse_other_weights(run, folder)
        return self._loaded(folder, *_setting(run), progress)

    def _loaded(self, folder: ModelFolder, device: str, dtype: str, progress: Progress) -> LoadedModel:
        from fillerscope.capture.self_check import check_capture
        from fillerscope.models.loading import load_folder

        key = (folder.digest, device, dtype)
        if self._model is None or self._model[0] != key:
            self._model = None  # two of them may not fit into memory
            progress.stage(f"loading {folder.label}", 0, None)
            loaded = load_folder(folder, dtype, device)
            check_capture(loaded)
            self._model = key, loaded
        return self._model[1]


def _refuse_unready(run: ModelRun) -> None:
    """Cheap questions only, the cheapest first."""
    if any(spec.endpoint for spec in run.study.models if spec.name == run.name):
        raise FigureError(f"{run.name} answers from a server, which gives no attention: nothing can be measured here")
    if not run.has_attention:
        raise FigureError("this run did not measure attention: its study has `probes.attention` off")
    if not run.store.has(merged_name(run.name)):
        raise StoreError(f"{run.path} is not finished for {run.name}: run the study again, it goes on from there")
    if missing := _not_installed():
        raise ModelError(missing)
    if any(entry.get("name") == run.name and entry.get("in_memory") for entry in _measured_models(run)):
        raise ModelError(f"{run.name} was in memory when it was measured, and cannot be loaded by its name")
    _refuse_other_weights(run, find(run.name))


def _not_installed() -> str:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    return f"measuring needs {missing[0]}, which is not installed here: pip install {missing[0]}" if missing else ""


def _measured_models(run: ModelRun) -> list[Json]:
    return list(run.store.manifest["identity"].get("models", []))


def _identified(run: ModelRun) -> Json:
    """What the run says of the model that it measured."""
    found = [entry for entry in _measured_models(run) if entry.get("name") == run.name]
    if not found or not {"digest", "dtype"} <= found[0].keys():
        raise StoreError(f"{run.path} does not say which weights of {run.name} it measured: run the study again")
    return dict(found[0])


def _refuse_other_weights(run: ModelRun, folder: ModelFolder) -> None:
    """The digest is not known yet where it is empty."""
    wanted = _identified(run)["digest"]
    if folder.digest and folder.digest != wanted:
        raise ModelError(
            f"{folder.name} is not the model that the run measured (digest {folder.digest[:12]}, expected "
            f"{wanted[:12]}): put that version in {folder.path}, or run the study again"
        )


def _setting(run: ModelRun) -> tuple[str, str]:
    """Device and dtype as in the run; where there is no such device, the CPU in float32."""
    from fillerscope.models.loading import choose_device

    try:
        identity = run.store.manifest["identity"]
        device = ALL_GPUS if identity.get("spread") else identity.get("device", "cpu")
        return choose_device(device), _identified(run)["dtype"]
    except ModelError:
        return "cpu", "float32"


def _differences(identity: Json) -> list[str]:
    from fillerscope.measure.identity import code_version
    from fillerscope.models.loading import choose_device

    there = {**identity.get("libraries", {}), "fillerscope": identity.get("code")}
    here = {package: _version(package) for package in PACKAGES} | {"fillerscope": code_version()}
    found = [
        f"the run was made with {name} {there.get(name)}, and this with {here[name]}"
        for name in here
        if there.get(name) != here[name]
    ]
    try:
        choose_device(identity.get("device", "cpu"))
    except ModelError:
        found.append(f"the run was made on {identity['device']}, and this on the CPU in float32")
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # it is there, and was not put there by a packager
        return "of an unknown version"


def _measured(run: ModelRun, record: ProblemRecord, loaded: LoadedModel, progress: Progress) -> Part:
    """The road of a shard, with the problem as its only one."""
    from fillerscope.capture.attention import capturing
    from fillerscope.capture.passes import PassRunner
    from fillerscope.capture.small_operations import SmallOperations
    from fillerscope.measure.shard import start_shard

    study = _attention_alone(run.study)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress.stage(f"measuring {record['id']} with {loaded.label}", done, len(study.conditions))

    layout = (run.facts.get("rowcheck") or {}).get("layout", "shared")
    small = SmallOperations.for_passes(loaded.model)
    gauge = PassRunner(loaded.model, _pass_tokens(run, loaded), layout=layout, small=small)
    with capturing(loaded.model):
        part = start_shard(study, [prepared(record)], gauge, tick).reduced(study).part()
    if part.records[0]["status"] != "ok":
        raise CaptureError(f"problem {record['id']} could not be measured: {part.records[0]['error']}")
    return part


def _attention_alone(study: Study) -> Study:
    """Other probes look on and change nothing in what is attended to."""
    off = {"affine": False, "activations": None, "answering": False}
    return study.model_copy(update={"probes": study.probes.model_copy(update=off)})


def _pass_tokens(run: ModelRun, loaded: LoadedModel) -> int:
    """As in the run, where this machine's memory holds that many."""
    from fillerscope.capture.memory import pass_tokens

    most = pass_tokens(loaded.model)
    return min(int(run.study.batch.tokens or run.facts.get("batch_tokens") or most), most)


def _matrix_agreement(run: ModelRun, record: ProblemRecord, condition: str, matrix: HeadMatrix) -> float:
    """How far the means of the matrix's columns are from what the run kept of this head, as a share of that."""
    original = np.array([span != FILLER for span in record["prompts"][condition]["spans"]])
    place = [one["number"] for one in run.measured()].index(record["number"])
    kept = run.summary("received_original", condition, "original")[place, matrix.layer - 1, matrix.head - 1]
    received = matrix.received(original, run.attention.diagonal)[original]
    mine = np.nanmean(received[int(run.attention.skip_first) :])
    return float(abs(mine - kept) / max(abs(kept), NOTHING))


def _compared(run: ModelRun, number: int, part: Part, differs: str, dtype: str) -> Remeasured:
    agreement = _agreement(run, number, part)
    if agreement <= EXACT or differs:
        return Remeasured(part, agreement, differs)
    if dtype == "float32":
        raise CaptureError(
            f"problem {part.records[0]['id']} measured again differs from the run by {agreement:.0e} of the largest "
            f"value ({EXACT:.0e} is allowed): see whether the run is sound with `{command('verify', run.path)}`"
        )
    return Remeasured(part, agreement, f"in {dtype}, what is measured beside a problem changes how it is rounded")


def _agreement(run: ModelRun, number: int, part: Part) -> float:
    """The largest difference of any head summary; those of one kind are held against the largest of them."""
    place = [record["number"] for record in run.measured()].index(number)
    gaps = [0.0]
    for condition in run.conditions:
        mine = np.asarray(part.arrays[Quantity.HEADS.key(condition)], dtype=np.float64)[0]
        for metric in COMPARED:
            for row, queries in enumerate(QUERIES):
                kept = run.summary(metric, condition, queries)[place]
                gaps.append(_gap(mine[METRICS.index(metric), row], kept))
    return max(gaps)


def _gap(mine: Array, kept: Array) -> float:
    """Of two arrays of one kind; what is a number in only one of them differs without bound."""
    if (np.isnan(mine) != np.isnan(kept)).any():
        return float("inf")
    largest = float(np.abs(np.nan_to_num(kept)).max())
    return float(np.abs(np.nan_to_num(mine - kept)).max()) / max(largest, NOTHING)
