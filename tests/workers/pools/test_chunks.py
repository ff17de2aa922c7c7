"""Laws of the queue; that each task ends exactly once, whatever dies, test_work_stealing.py says of a whole run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.evaluator import PassCost
from workers.pool import PointTask, StateTask, TasksInTime
from workers.pools.chunks import KILLS_BEFORE_SPLIT, Chunk, ChunkQueue, MeasuredSpeed


def make_tasks(kinds):
    return [
        PointTask(index, (float(index),)) if is_point else StateTask(index, lambda: ({}, None))
        for index, is_point in enumerate(kinds)
    ]


KINDS = st.lists(st.booleans() | st.just(True), max_size=60)
SPEEDS = st.none() | st.floats(0.01, 200)


def speed_of(points_per_second):
    """What a worker's speed looks like when chunks have long had their right length."""
    speed = MeasuredSpeed()
    if points_per_second is not None:
        points = max(1, round(points_per_second))
        speed.add(points, points / points_per_second)
    return speed


def drained(queue, speed, *, idle=True):
    """All chunks that a queue still gives a worker."""
    return list(iter(lambda: queue.next(speed, idle=idle), None))


def keys(chunk):
    return [task.key for task in chunk.tasks]


@given(KINDS, st.integers(1, 4), SPEEDS)
def test_without_deaths_tasks_are_given_out_in_order(kinds, workers, speed):
    tasks = make_tasks(kinds)
    queue = ChunkQueue(iter(tasks), workers)
    given_out = []
    for chunk in drained(queue, speed_of(speed)):
        assert chunk.is_state == isinstance(chunk.tasks[0], StateTask)
        assert len({type(task) for task in chunk.tasks}) == 1
        assert len(chunk.tasks) == 1 or not chunk.is_state
        given_out += chunk.tasks
    assert given_out == tasks
    assert queue.is_empty


@given(st.integers(1, 4), st.floats(0.1, 200))
def test_a_chunk_takes_about_a_second(workers, speed):
    queue = ChunkQueue((PointTask(index, (0.0,)) for index in range(5 * 8 * 200 + 1000)), workers)
    for _ in range(5):
        assert len(queue.next(speed_of(speed), idle=True).tasks) == max(1, round(speed))


def test_chunks_become_small_towards_the_end():
    queue = ChunkQueue((PointTask(index, (0.0,)) for index in range(100)), 2)
    sizes = [len(chunk.tasks) for chunk in drained(queue, speed_of(50.0), idle=False)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 25
    assert sizes[-1] == 1


def test_tasks_are_read_no_further_than_needed():
    read = []

    def stream():
        for index in range(1000):
            read.append(index)
            yield PointTask(index, (0.0,))

    queue = ChunkQueue(stream(), 2)
    assert len(queue.next(MeasuredSpeed(), idle=True).tasks) == 1
    assert len(read) == 4
    queue.next(speed_of(10.0), idle=False)
    assert len(read) < 50


def test_no_chunk_is_given_out_after_the_time_is_over():
    over = []
    tasks = (PointTask(index, (0.0,)) for index in range(100))
    queue = ChunkQueue(TasksInTime(tasks, lambda: bool(over)), 4)
    assert len(queue.next(MeasuredSpeed(), idle=True).tasks) == 1
    over.append(True)
    assert queue.next(MeasuredSpeed(), idle=True) is None
    assert queue.is_empty


def test_a_chunk_that_was_only_waiting_is_not_suspected():
    queue = ChunkQueue([], 1)
    chunk = Chunk(make_tasks([True] * 4))
    for _ in range(20):
        assert queue.bring_back(chunk, killed=False) is None
        assert queue.next(MeasuredSpeed(), idle=False) is None
        assert not queue.is_empty
        assert queue.next(MeasuredSpeed(), idle=True) is chunk
    assert chunk.kills == 0


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_suspects_are_split(size):
    queue = ChunkQueue([], 1)
    chunk = Chunk(make_tasks([True] * size))
    for _ in range(KILLS_BEFORE_SPLIT - 1):
        assert queue.bring_back(chunk, killed=True) is None
        assert queue.next(MeasuredSpeed(), idle=True) is chunk
    hopeless = queue.bring_back(chunk, killed=True)
    if size == 1:
        assert hopeless is chunk
        assert queue.is_empty
        return
    assert hopeless is None
    halves = drained(queue, MeasuredSpeed())
    assert len(halves) == 2
    assert [key for half in halves for key in keys(half)] == list(range(size))
    assert {half.kills for half in halves} == {KILLS_BEFORE_SPLIT - 1}


@pytest.mark.parametrize(
    ("points", "workers", "sizes"),
    [(100, 1, [30, 30, 30, 10]), (100, 2, [30, 30, 20, 20]), (7, 2, [4, 3]), (1, 3, [1])],
)
def test_a_chunk_is_as_large_as_a_pass_is_worth(points, workers, sizes):
    """The first one too, whose speed is not known, and the last ones are equal; sets of weights come one by one."""
    tasks = [StateTask("state", lambda: ({}, None)), *(PointTask(index, (0.0,)) for index in range(points))]
    queue = ChunkQueue(iter(tasks), workers, PassCost(30, 1.0, 0.1))
    speed = MeasuredSpeed()
    assert queue.next(speed, idle=True).is_state
    assert queue.next(speed, idle=False) is None
    assert [len(chunk.tasks) for chunk in drained(queue, speed)] == sizes
    assert queue.is_empty
