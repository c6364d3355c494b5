"""The order in which shards are handed out to workers, and in which their results can be written."""

from __future__ import annotations

from fillerscope.measure.engines.ray.queue import AHEAD, MOST_FAILURES, Group, Queue, Unit


def prepared(*groups: Group[str]) -> Queue[str]:
    for group in groups:
        group.is_prepared = True
    return Queue(groups)


def shard(taken: tuple[Group[str], Unit] | None) -> int | None:
    assert taken is not None
    return taken[1].shard


def test_results_leave_in_order_whichever_comes_first() -> None:
    group: Group[str] = Group(0, [0, 1, 2, 4])
    for number in (4, 1, 2):
        group.arrived[number] = str(number)
    assert list(group.in_order()) == []
    group.arrived[0] = "0"
    assert [number for number, _ in group.in_order()] == [0, 1, 2, 4]
    assert not group.unwritten
    assert not group.arrived


def test_one_worker_prepares_a_stage_while_the_others_wait() -> None:
    group: Group[str] = Group(0, [0, 1])
    queue = Queue([group])
    assert shard(queue.take(None, 2)) is None
    assert queue.take(None, 2) is None
    group.is_prepared = True
    assert [shard(queue.take(None, 2)) for _ in range(2)] == [0, 1]
    assert queue.take(None, 2) is None


def test_stages_are_prepared_in_their_order_and_after_shards_that_can_be_computed() -> None:
    first, second, third = (Group[str](model, [0]) for model in (0, 0, 1))
    queue = Queue([first, second, third])
    first.is_prepared = True
    assert queue.take(None, 2) == (first, Unit(0))
    preparation = queue.take(None, 2)
    assert preparation is not None
    assert preparation[0] is second
    assert queue.take(None, 2) is None  # a twin needs what its model decided


def test_a_worker_stays_with_its_model_as_long_as_there_is_work_for_it() -> None:
    first, second = Group[str](0, [0, 1]), Group[str](1, [0])
    queue = prepared(first, second)
    assert queue.take(1, 2) == (second, Unit(0))
    assert queue.take(1, 2) == (first, Unit(0))


def test_a_shard_that_failed_is_taken_before_all_others_and_given_up_in_the_end() -> None:
    group: Group[str] = Group(0, [0, 1])
    queue = prepared(group)
    for number in range(MOST_FAILURES):
        taken = queue.take(0, 1)
        assert shard(taken) == 0
        unit = taken[1] if taken else Unit(None)
        assert not unit.has_failed
        unit.failures.append(str(number))
        group.put_back(unit)
    assert unit.has_failed


def test_a_preparation_that_failed_is_handed_out_again() -> None:
    group: Group[str] = Group(0, [0])
    queue = Queue([group])
    taken = queue.take(None, 1)
    assert taken is not None
    taken[1].failures.append("died")
    group.put_back(taken[1])
    again = queue.take(None, 1)
    assert again is not None
    assert again[1].failures == ["died"]


def test_results_that_wait_for_an_earlier_shard_do_not_fill_the_memory() -> None:
    group: Group[str] = Group(0, range(100))
    queue, workers, taken = prepared(group), 2, []
    queue.take(0, workers)  # the first shard, which takes long
    while (one := queue.take(0, workers)) is not None:
        taken.append(shard(one))
        group.arrived[taken[-1] or 0] = "early"
    assert taken == list(range(1, 1 + AHEAD * workers))


def test_a_shard_waits_for_what_it_needs() -> None:
    there: set[int] = set()
    group: Group[str] = Group(0, [0, 1], there.__contains__)
    queue = prepared(group)
    assert queue.take(0, 1) is None
    there.add(0)
    assert shard(queue.take(0, 1)) == 0
    assert queue.take(0, 1) is None


def test_shards_whose_workers_died_are_taken_again_when_all_later_ones_wait_for_them() -> None:
    group: Group[str] = Group(0, range(20))
    queue = prepared(group)
    dead = [queue.take(0, 2) for _ in range(2)]
    while taken := queue.take(0, 2):
        group.arrived[taken[1].shard or 0] = "bytes"
    assert len(group.arrived) == AHEAD * 2
    for _, unit in filter(None, dead):  # in the order of their deaths, which is any
        group.put_back(unit)
    assert shard(queue.take(0, 2)) == 0
    assert queue.take(0, 2) is None
    group.arrived[0] = "bytes"
    assert [number for number, _ in group.in_order()] == [0]
    assert shard(queue.take(0, 2)) == 1
