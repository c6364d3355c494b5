"""The explorer's server: read-only, one page over one run or several, for those who have its token.

Every answer is made from the run folder when it is asked for. A mistake comes back as one line.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import cast

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.export import tables_of, write_table
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.display import first_line
from fillerscope.errors import FigureError, FillerscopeError
from fillerscope.report import answer_payload, payload
from fillerscope.report.answer_types import Flips
from fillerscope.report.explorer.access import STATIC, Access, Guard, one_line
from fillerscope.report.explorer.jobs import ClientGoneError, MeasuringQueue, QueueFullError, hung_up
from fillerscope.report.explorer.live_run import Watched
from fillerscope.report.explorer.matrix_payload import packed_matrix
from fillerscope.report.explorer.remeasure import Remeasurer
from fillerscope.report.headline import headline
from fillerscope.report.methods.page import as_text, methods
from fillerscope.report.packed_arrays import clean
from fillerscope.report.payload_types import (
    Finding,
    Headline,
    Methods,
    ModelFindings,
    Ready,
    RunOverview,
    Runs,
    Section,
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fillerscope</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/style.css">
<script defer src="/static/page.js"></script>
</head>
<body data-page="explorer">
<div id="page"><p class="loading" role="status">Loading the runs \u2026</p></div>
<noscript>This page needs JavaScript.</noscript></body>
</html>
"""
Asked = dict[str, str]
Make = Callable[[Run, Asked], object]  # an answer: bytes, or what JSON takes


def application(paths: Sequence[Path], access: Access) -> Starlette:
    """All that is served to those who have access, over run folders that are opened now."""
    return Explorer(*opened(paths)).application(access)


def opened(paths: Sequence[Path]) -> tuple[list[Watched], list[str]]:
    """The runs that can be shown, and why the others cannot; an error where none can."""
    runs, left_out = list[Watched](), list[str]()
    for path in paths:
        try:
            runs.append(Watched(path))
        except FillerscopeError as error:
            if len(paths) == 1:
                raise
            left_out.append(f"{path} is left out: {error}")
    if not runs:
        raise FigureError("; ".join(left_out))
    return runs, left_out


class Explorer:
    """Answers questions about some runs."""

    def __init__(self, runs: Sequence[Watched], left_out: Sequence[str] = ()) -> None:
        """`left_out` says which runs are not shown, and why."""
        self.left_out = left_out
        self.runs, self.remeasurer, self.queue = runs, Remeasurer(), MeasuringQueue()

    def application(self, access: Access) -> Starlette:
        routes = [
            Route("/", lambda request: access.set_cookie(request, HTMLResponse(PAGE))),
            Route("/static/{name}", _static),
            Route("/api/runs", self._told(lambda _: self.all())),
            Route("/api/{number:int}/table/{name}.csv", self._told(self.table)),
            *(Route(f"/api/{{number:int}}/{name}", self._told(self._asked(make))) for name, make in ANSWERS.items()),
            Route("/api/{number:int}/overview", self._told(lambda request: self.watched(request).overview())),
            Route("/api/{number:int}/ready", self._told(self.ready)),
            Route("/api/{number:int}/problem", self._measured(self.problem), methods=["POST"]),
            Route("/api/{number:int}/matrix", self._measured(self.matrix), methods=["POST"]),
        ]
        made = Starlette(routes=routes, middleware=[Middleware(Guard, access)])
        made.router.redirect_slashes = False
        return made

    def all(self) -> Runs:
        """Every run by name, with what the page must know first; their files begin to be checked. One that is damaged
        does not hide the others."""
        names = [watched.name for watched in self.runs]
        told: Runs = {"runs": [], "numbers": [], "overviews": [], "unreadable": list(self.left_out)}
        for number, watched in enumerate(self.runs):
            try:
                watched.check()
                told["overviews"].append(cast("RunOverview", watched.overview()))
            except FillerscopeError as error:
                told["unreadable"].append(str(error))
            else:
                told["numbers"].append(number)
                told["runs"].append(watched.name if names.count(watched.name) == 1 else str(watched.path))
        if not told["runs"]:
            raise FigureError("; ".join(told["unreadable"]))
        return told

    def watched(self, request: Request) -> Watched:
        number = int(request.path_params["number"])
        if number >= len(self.runs):
            raise FigureError(f"there are {len(self.runs)} runs, counted from 0")
        return self.runs[number]

    def _asked(self, make: Make) -> Callable[[Request], object]:
        def answer(request: Request) -> object:
            asked = dict(request.query_params)
            key = (request.scope["path"], *sorted(asked.items()))
            remembered: object = self.watched(request).remember(key, lambda run: make(run, asked))
            return remembered

        return answer

    def _told(self, answer: Callable[[Request], object]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of an answer, which is made in a thread of its own."""

        async def endpoint(request: Request) -> Response:
            try:
                return _response(await run_in_threadpool(answer, request))
            except Exception as error:
                return _refusal(error)

        return endpoint

    def _measured(self, answer: Callable[[Request], bytes]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of an answer that a model is run for, when it is its turn."""

        async def endpoint(request: Request) -> Response:
            try:
                return _response(await self.queue.run(partial(answer, request), partial(hung_up, request)))
            except ClientGoneError:
                return Response(status_code=408)  # which nobody reads
            except Exception as error:
                return _refusal(error)

        return endpoint

    def table(self, request: Request) -> Response:
        """One table of the run as a CSV file."""
        run, name = self.watched(request).run, request.path_params["name"]
        if name not in tables_of(run):
            raise FigureError(f"this run has no table {name!r}; it has {', '.join(tables_of(run))}")
        folder = tempfile.TemporaryDirectory(prefix="fillerscope-")
        path = write_table(run, name, Path(folder.name), "csv")
        if path is None:
            folder.cleanup()
            raise FigureError(f"the table {name!r} of this run is empty")
        return FileResponse(path, filename=f"{name}.csv", background=BackgroundTask(folder.cleanup))

    def ready(self, request: Request) -> Ready:
        """Whether one problem can be measured again here."""
        return {"reason": self.remeasurer.at_hand(self.watched(request).run[request.query_params.get("model")])}

    def problem(self, request: Request) -> bytes:
        """One problem's own profile of a head, measured now."""
        asked = dict(request.query_params)
        run = self.watched(request).run[asked.get("model")]
        result = self.remeasurer.measure(run, int(asked["problem"]))
        place = payload.Place.of(run, asked)
        close = f"to {result.agreement:.1g}" if result.agreement else "to the last digit"
        note = f"Measured again here; it agrees with the stored run {close}. {result.note}".strip()
        return payload.one_problem(run, result.part, place, note)

    def matrix(self, request: Request) -> bytes:
        """The weights of one head on one prompt, computed now."""
        asked = dict(request.query_params)
        run, number, condition = (
            self.watched(request).run[asked.get("model")],
            int(asked["problem"]),
            asked["condition"],
        )
        matrix, note = self.remeasurer.matrix(run, number, condition, int(asked["layer"]), int(asked["head"]))
        record = next(one for one in run.measured() if one["number"] == number)
        return packed_matrix(record, condition, matrix, note)


def _response(answer: object) -> Response:
    """Packed numbers as they are, all else as JSON."""
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    return Response(json.dumps(answer, allow_nan=False), media_type="application/json")


def _refusal(error: Exception) -> Response:
    """What is wrong in one line: with what was asked (400), with how much (429), or with this program (500)."""
    if isinstance(error, QueueFullError):
        return one_line(str(error), 429)
    if isinstance(error, KeyError):
        return one_line(f"the page asked for nothing that there is: {error}", 400)
    if isinstance(error, FillerscopeError | ValueError):
        return one_line(str(error), 400)
    if os.environ.get("FILLERSCOPE_DEBUG"):
        raise error
    return one_line(
        f"unexpected {type(error).__name__}: {first_line(error)} (set FILLERSCOPE_DEBUG=1 to see where)", 500
    )


def _findings(run: Run, _: Asked) -> list[ModelFindings]:
    compared = available_comparison(run)
    return clean([_findings_of(run, model, compared) for model in run.models])


def _findings_of(run: Run, model: str, compared: Sequence[Accuracy]) -> ModelFindings:
    findings = findings_of(run[model], compared)
    top = cast("Headline", asdict(headline(run, model, compared, findings)))
    records = [cast("Finding", finding.record() | {"line": brief(finding)}) for finding in findings]
    return {"model": model, "label": run.label(model), "headline": top, "findings": records}


def _flips(run: ModelRun, asked: Asked) -> Flips:
    temperature = float(asked["temperature"]) if asked.get("temperature") else None
    return answer_payload.flipped(run, asked["condition"], asked["against"], temperature)


def _methods(run: Run, _: Asked) -> Methods:
    sections = methods(run)
    return {"sections": [cast("Section", asdict(section)) for section in sections], "text": as_text(sections)}


def _of_model(make: Callable[[ModelRun, Asked], object]) -> Make:
    """An answer about the model that is asked for."""
    return lambda run, asked: make(run[asked["model"]], asked)


ANSWERS: dict[str, Make] = {
    "map": _of_model(lambda run, asked: payload.head_maps(run, asked["condition"], asked["queries"])),
    "head": _of_model(lambda run, asked: payload.head(run, payload.Place.of(run, asked))),
    "layer": _of_model(lambda run, asked: payload.whole_layer(run, payload.Place.of(run, asked))),
    "tokens": _of_model(lambda run, _: payload.tokens(run)),
    "depth": _of_model(lambda run, asked: payload.depth(run, asked["queries"])),
    "affine": _of_model(lambda run, _: payload.affine(run)),
    "activations": _of_model(lambda run, asked: payload.activations(run, asked["cls"])),
    "histogram": _of_model(lambda run, asked: payload.histogram_of(run, int(asked["layer"]), asked["cls"])),
    "comparison": lambda run, asked: answer_payload.comparison(run, asked.get("by")),
    "flips": _of_model(_flips),
    "answers": _of_model(lambda run, asked: answer_payload.transcripts(run, asked, int(asked.get("start", 0)))),
    "findings": _findings,
    "methods": _methods,
}


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return one_line(f"there is no {name}", 404)
    content = files("fillerscope.report").joinpath("static", name).read_bytes()
    return Response(content, media_type=STATIC[name])
