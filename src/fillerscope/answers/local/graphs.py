"""Decode steps captured as CUDA graphs: the host starts a whole step at once, and launches no kernel by itself.

A step is captured when it is first needed, for a number of rows, and replayed ever after; all captured steps share one
pool of memory. Knows nothing of tokens or models: a step is a function that reads and writes tensors that stay where
they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fillerscope.display import first_line

Outputs = tuple[Tensor, Tensor | None]
Step = Callable[[], Outputs]
Captured = tuple[torch.cuda.CUDAGraph, Outputs]


class NotCapturedError(Exception):
    """A step cannot be captured; the message says why."""


def slower_because(reason: str) -> str:
    """What is said where decode steps are not captured."""
    return f"decode steps are computed one kernel at a time, which is slower: {reason}"


def padded_rows(rows: int, most: int) -> int:
    """So many rows, or a few more, up to `most`: one captured step serves several numbers of rows."""
    size = 1 << max(0, rows - 1).bit_length()
    part = max(1, size // 4)
    return min(most, -(-rows // part) * part)


def padded_width(width: int, most: int) -> int:
    """So many keys, or a few more, up to `most`."""
    part = max(128, (1 << max(0, width - 1).bit_length()) // 4)
    return min(most, -(-width // part) * part)


@dataclass
class Graphs:
    """The captured steps of one workspace, by what they depend on."""

    device: torch.device
    usable: bool = True  # whether steps can be captured, as far as is known
    kernels: bool = True  # whether our own kernels may compute them
    captured: dict[tuple[int, Hashable], Captured] = field(default_factory=dict)
    stream: torch.cuda.Stream | None = None

    def run(self, rows: int, kind: Hashable, step: Step, cells: Tensor) -> Outputs:
        """Replay a step for so many rows and of a kind, or capture it first. `cells` is what the step changes; trying
        it out leaves them unchanged."""
        if (rows, kind) not in self.captured:
            known = any(kind == other for _, other in self.captured)
            self.captured[rows, kind] = self._capture(step, cells, known)
        graph, outputs = self.captured[rows, kind]
        graph.replay()
        return outputs

    def clear(self) -> None:
        """Forget all steps: what they read and write is there no longer."""
        self.captured.clear()

    def _capture(self, step: Step, cells: Tensor, known: bool) -> Captured:
        before = cells.clone()
        try:
            with self._aside():
                if not known:  # compiles kernels and makes tables and libraries ready, which may make the host wait
                    step()
                    cells.copy_(before)
                with _refusing_waits():
                    step()
                cells.copy_(before)
                return self._recorded(step)
        except Exception as error:  # whatever a model does that cannot be captured
            cells.copy_(before)
            raise NotCapturedError(first_line(error)) from error

    def _recorded(self, step: Step) -> Captured:
        pool = next((graph.pool() for graph, _ in self.captured.values()), None)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating memory meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            outputs = step()
        finally:
            graph.capture_end()
        return graph, outputs

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """In a stream of its own, as capturing demands, after all work so far and before all work to come."""
        if self.stream is None:
            self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        work = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(work)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            work.wait_stream(self.stream)


@contextmanager
def _refusing_waits() -> Iterator[None]:
    """Inside the block an operation that makes the host wait is an error: found here, it breaks no capture."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype, when it is first set
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
