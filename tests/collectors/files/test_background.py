"""Threads that write beside their callers: order, bounded memory, intervals, first errors, ends; and trying again."""

import itertools
import os
import threading
from unittest.mock import Mock

import pytest
from waiting import PATIENCE, wait_until

from collectors.files.background import WriterClosedError, WritingThread, retry


class Clock:
    """Stands still until somebody moves it; counts how often it is asked."""

    def __init__(self):
        self.now, self.asked = 0.0, 0

    def __call__(self):
        self.asked += 1
        return self.now

    def wait_until_seen(self):
        """Returns once the thread has asked, and acted on the answer, since the clock was moved."""
        before = self.asked
        # Twice in each round of waiting, and three times where it then saves, the last one after the save.
        wait_until(lambda: self.asked >= before + 8, what="the thread to look at the clock")


def fail():
    raise OSError(28, "No space left on device")


def test_jobs_run_in_order_on_one_thread_that_ends():
    before, done = threading.active_count(), []
    jobs = WritingThread("jobs", 3)
    assert threading.active_count() == before
    for number in range(100):
        jobs.submit(lambda number=number: done.append((number, threading.current_thread().name)))
    jobs.wait()
    assert done == [(number, "jobs") for number in range(100)]
    assert jobs.is_idle
    jobs.close()
    jobs.close()
    assert threading.active_count() == before
    with pytest.raises(WriterClosedError, match="jobs is closed"):
        jobs.submit(fail)


def test_the_first_error_ends_the_work_and_is_raised_by_every_call():
    done = []
    jobs = WritingThread(
        "jobs", 9, last=lambda: done.append("last") or fail(), explain=lambda error: RuntimeError(f"explained: {error}")
    )
    may_go = threading.Event()
    jobs.submit(lambda: may_go.wait(PATIENCE))
    jobs.submit(lambda: {}["missing"])
    jobs.submit(lambda: done.append("after the error"))
    assert not jobs.error_was_raised
    may_go.set()
    for call in (jobs.wait, lambda: jobs.submit(fail), jobs.touch, jobs.check, jobs.close, jobs.close):
        with pytest.raises(RuntimeError, match="explained: 'missing'") as raised:
            call()
        assert isinstance(raised.value.__cause__, KeyError)
    assert done == ["last"]
    assert jobs.error_was_raised


@pytest.mark.parametrize("begin", [lambda writer: writer.submit(fail), WritingThread.touch])
def test_a_thread_that_the_system_refuses_is_not_waited_for(begin, monkeypatch):
    writer = WritingThread("writer", save=fail)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            begin(writer)
    writer.close()


@pytest.mark.parametrize("order", list(itertools.product([True, False], repeat=3)))
def test_every_order_of_failures_ends_with_the_first_error(order):
    """The job, the state that it leaves and what is done last, each well or not."""
    job_fails, save_fails, last_fails = order
    done = []

    def act(name, fails):
        done.append(name)
        if fails:
            raise OSError(5, name)

    jobs = WritingThread(
        "jobs", 3, save=lambda: act("save", save_fails), interval=0.0, last=lambda: act("last", last_fails)
    )
    jobs.submit(lambda: act("job", job_fails))
    wait_until(lambda: "save" in done or job_fails)
    first = next((name for name, fails in zip(("job", "save", "last"), order, strict=True) if fails), None)
    for _ in range(2):
        if first is None:
            jobs.close()
        else:
            with pytest.raises(OSError, match=first):
                jobs.close()
    assert done[-1] == "last"


def test_a_state_is_saved_at_intervals_while_it_changes(wait_until_blocked):
    # A power of two, so that sums of it are exact.
    clock, saved, value, interval = Clock(), [], 0, 2.0**-8
    before = set(threading.enumerate())
    state = WritingThread("state", save=lambda: saved.append((value, clock.now)), interval=interval, clock=clock)
    for number in range(5):
        for share in (0.0, 0.25, 0.875):
            clock.now = (number + share) * interval
            value += 1
            state.touch()
            clock.wait_until_seen()
            assert len(saved) == number, "too early"
        clock.now = (number + 1) * interval
        wait_until(lambda number=number: len(saved) > number)
        (thread,) = set(threading.enumerate()) - before
        wait_until_blocked(thread)
    assert saved == [(3 * number, number * interval) for number in range(1, 6)]
    clock.now += 100 * interval
    wait_until_blocked(thread)
    assert thread.is_alive()
    state.close()
    assert len(saved) == 5, "nothing has changed since"


def test_slow_saves_leave_most_of_the_time_to_others():
    # A power of two, so that sums of it are exact.
    clock, saved, taken = Clock(), [], 2.0**-10

    def save():
        saved.append(clock.now)
        clock.now += taken
        state.touch()

    state = WritingThread("state", save=save, rest=4, clock=clock)
    state.touch()
    for number in range(3):
        wait_until(lambda number=number: len(saved) > number)
        clock.wait_until_seen()
        clock.now = saved[-1] + 4.875 * taken
        clock.wait_until_seen()
        assert len(saved) == number + 1, "too early"
        clock.now = saved[-1] + 5 * taken
    wait_until(lambda: len(saved) > 3)
    state.close()
    assert saved == [0.0, 5 * taken, 10 * taken, 15 * taken]


def test_a_thread_saves_what_jobs_left_and_sleeps_until_it_is_woken(wait_until_blocked):
    before, done = set(threading.enumerate()), []
    jobs = WritingThread("jobs", 3, save=lambda: done.append("save"), last=lambda: done.append("last"))
    jobs.submit(lambda: done.append("job"))
    (thread,) = set(threading.enumerate()) - before
    wait_until(lambda: done == ["job", "save"])
    wait_until_blocked(thread)
    assert thread.is_alive()
    jobs.touch()
    wait_until(lambda: done == ["job", "save", "save"])
    jobs.close()
    assert done == ["job", "save", "save", "last"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_closes_nothing():
    done = []
    jobs = WritingThread("jobs", 3, last=lambda: done.append("last"))
    jobs.submit(lambda: None)
    jobs.wait()
    child = os.fork()
    if not child:
        jobs.close()
        os._exit(1 if jobs.is_open else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (jobs.is_open, done) == (True, [])
    jobs.close()
    assert done == ["last"]


def test_other_errors_are_raised_at_once():
    broken = Mock(side_effect=[KeyError("1"), 2])
    with pytest.raises(KeyError, match="1"):
        retry(broken, (0.0, 0.0))
    assert broken.call_count == 1
    broken = Mock(side_effect=[KeyError("1"), 2])
    assert retry(broken, (0.0,), when=lambda error: isinstance(error, KeyError)) == 2


def test_a_state_that_a_job_saved_is_not_saved_once_more(wait_until_blocked):
    """Some stores take one write of a name in a second."""
    clock, done = Clock(), []
    before = set(threading.enumerate())

    def save():
        done.append(("save", clock.now))

    state = WritingThread("state", 3, save=save, interval=1.0, clock=clock)
    clock.now = 5.0
    state.submit(save)
    state.wait()
    (thread,) = set(threading.enumerate()) - before
    wait_until_blocked(thread)
    assert done == [("save", 5.0)]
    state.touch()
    clock.wait_until_seen()
    assert done == [("save", 5.0)], "too early"
    clock.now = 6.0
    wait_until(lambda: len(done) > 1)
    state.close()
    assert done == [("save", 5.0), ("save", 6.0)]
