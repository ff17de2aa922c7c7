"""Tests that depend on time are refused."""

import pytest
from time_rule import MOST, complaints


@pytest.mark.parametrize(
    "line",
    [
        "time.sle~ep(1)",
        "page.wai~t_for_timeout(300)",
        "begun = time.mon~otonic()",
        "assert time.per~f_counter() - begun < 2",
        "time.sle~ep(1)  # time:",
        "fro~m time import mon~otonic  # time: with a reason",
        "done.wa~it(0.05)",
        "done.wa~it(20)",
        "process.wait(tim~eout=5)",
        "run(command, tim~eout=9.5, check=True)",
    ],
)
def test_a_line_that_depends_on_time_is_refused(line):
    line = line.replace("~", "")  # so that this file itself is not refused
    (complaint,) = complaints({"tests/test_it.py": f"import time\n{line}\n"})
    assert complaint.startswith("tests/test_it.py:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "time.sle~ep(1)  # time: a random moment",
        "done.wait(PATIENCE)",
        "run(command, timeout=PATIENCE)",
        "run(command, timeout=10)",
        "run(command, timeout=90.0)",
        "assert not actors.wait(calls)",
    ],
)
def test_a_line_that_does_not_is_not(line):
    assert complaints({"tests/test_it.py": line.replace("~", "")}) == []


def test_reasons_are_few():
    lines = "time.sle~ep(1)  # time: a reason\n".replace("~", "")
    assert complaints({"tests/test_it.py": lines * MOST}) == []
    (complaint,) = complaints({"tests/test_it.py": lines * MOST, "tests/test_more.py": lines})
    assert complaint.startswith(
        f"{MOST + 1} lines depend on time with a reason, at most {MOST} may: tests/test_it.py:1, "
    )
