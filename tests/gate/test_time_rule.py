"""Tests that depend on time are refused."""

import pytest
from time_rule import MOST, complaints


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(1)",
        "page.wait_for_timeout(300)",
        "begun = time.monotonic()",
        "assert time.perf_counter() - begun < 2",
        "time.sleep(1)  # time:",
        "from time import monotonic  # time: with a reason",
        "done.wait(0.05)",
        "done.wait(20)",
        "process.wait(timeout=5)",
        "run(command, timeout=9.5, check=True)",
    ],
)
def test_a_line_that_depends_on_time_is_refused(line):
    (complaint,) = complaints({"tests/test_it.py": f"import time\n{line}\n"})
    assert complaint.startswith("tests/test_it.py:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(1)  # time: a random moment",
        "done.wait(PATIENCE)",
        "run(command, timeout=PATIENCE)",
        "run(command, timeout=10)",
        "run(command, timeout=90.0)",
        "assert not actors.wait(calls)",
    ],
)
def test_a_line_that_does_not_is_not(line):
    assert complaints({"tests/test_it.py": line}) == []


def test_reasons_are_few():
    lines = "time.sleep(1)  # time: a reason\n"
    assert complaints({"tests/test_it.py": lines * MOST}) == []
    (complaint,) = complaints({"tests/test_it.py": lines * MOST, "tests/test_more.py": lines})
    assert complaint.startswith(
        f"{MOST + 1} lines depend on time with a reason, at most {MOST} may: tests/test_it.py:1, "
    )
