"""Which processes have one thread, because they were forked; tests/public_cases/test_processes.py forks one."""

import pytest

from workers import forked


def test_only_forked_processes_are_limited(monkeypatch):
    assert forked.threads_of(4) == 4
    monkeypatch.setattr(forked, "_begun", -1)
    assert forked.threads_of(1) == 1
    with pytest.warns(UserWarning, match=r"was forked .* measures with one thread\. Start it with .*\"spawn\""):
        assert forked.threads_of(4) == 1
    forked.begin_anew()
    assert forked.threads_of(4) == 4
