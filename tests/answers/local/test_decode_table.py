"""The table that decode steps read and write: rows enter, move on, are moved and become free."""

from __future__ import annotations

import numpy as np
import torch

from fillerscope.answers.local.decode_table import Column, DecodeTable
from fillerscope.answers.local.rows import Row
from fillerscope.answers.request import Request

CPU = torch.device("cpu")
REQUESTS = [
    Request((5, 6, 7), 1, key=11, filler=(0, 1), gap=(4, 9)),
    Request((8, 9), 2, key=12, filler=(1, 2)),
    Request((3,) * 6, 3, key=13, filler=(2, 5), gap=(0, 2)),
]


def filled(slots: int = 5) -> tuple[DecodeTable, list[Row]]:
    """With one free slot in front of the rows and one behind them."""
    table = DecodeTable.empty(slots, 20, True, CPU)
    rows = [Row.of(number, request, 4 + number) for number, request in enumerate(REQUESTS)]
    table.enter(1, rows, REQUESTS)
    return table, rows


def test_a_row_begins_with_the_last_token_of_its_prompt() -> None:
    table, rows = filled()
    assert table.column(Column.PENDING).tolist() == [0, 7, 9, 3, 0]
    assert table.column(Column.LENGTH).tolist() == [0, 2, 1, 5, 0]
    assert table.column(Column.KEY).tolist() == [0, 11, 12, 13, 0]
    drawn = table.drawn()
    assert drawn is not None
    assert drawn.tolist() == [0, *(row.draws()[0] for row in rows), 0]


def test_rows_move_on_and_free_slots_stay() -> None:
    """A free slot that moved on would reach the end of its keys."""
    table, rows = filled()
    for tokens in ([90, 91, 92, 93, 94], [80, 81, 82, 83, 84]):
        table.advance(torch.tensor(tokens))
    assert table.column(Column.PENDING).tolist() == [0, 81, 82, 83, 0]
    assert table.column(Column.LENGTH).tolist() == [0, 4, 3, 7, 0]
    assert table.column(Column.ISSUED).tolist() == [0, 2, 2, 2, 0]
    assert table.column(Column.KEY).tolist() == [0, 11, 12, 13, 0]
    drawn = table.drawn()
    assert drawn is not None
    assert np.array_equal(drawn[1:4].numpy(), [row.draws()[2] for row in rows])


def test_rows_are_moved_and_freed_with_all_that_is_theirs() -> None:
    table, rows = filled()
    table.move(torch.tensor([3]), torch.tensor([1]))
    table.free(torch.tensor([3]))
    assert table.cells[1].tolist() == [3, 5, 0, 1, 0, 2, 2, 5, 13]
    assert not table.cells[3].any()
    assert table.draws is not None
    assert np.array_equal(table.draws[1, : rows[2].limit].numpy(), rows[2].draws())


def test_positions_are_skipped_and_filler_is_hidden_as_the_request_says() -> None:
    table = filled()[0].part(1, 4)
    assert table.skipped().tolist() == [[0], [0], [2]]
    table.advance(torch.tensor([1, 1, 1]))
    table.advance(torch.tensor([1, 1, 1]))
    assert table.skipped().tolist() == [[9], [0], [2]]
    hidden = table.hidden(6)[:, 0, 0]
    assert [row.nonzero().flatten().tolist() for row in hidden] == [[0], [1], [2, 3, 4]]


def test_a_part_is_in_the_same_memory() -> None:
    table, _ = filled()
    table.part(2, 3).advance(torch.tensor([77]))
    assert table.column(Column.PENDING).tolist() == [0, 7, 77, 3, 0]
