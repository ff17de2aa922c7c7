"""Progress as text: a line for each ten per cent where nobody sees a line move."""

import io
import re
import sys

import pytest

from collectors.progress_bar import ProgressLines, progress_bar


@pytest.fixture
def counted(capfd, monkeypatch):
    """A function that counts in a process without a terminal, and returns the lines that this writes."""
    monkeypatch.delitem(sys.modules, "ipykernel.zmqshell", raising=False)  # what a notebook is known by

    def lines_of(total, count, done=0):
        with progress_bar(total, "point", done=done, name="PCA landscape") as bar:
            bar.write("a line of its own", file=bar.fp)
            for _ in range(count):
                bar.update()
        told = capfd.readouterr()
        assert told.out == ""
        assert not {"\r", "\x1b"} & set(told.err)
        first, *lines = told.err.splitlines()
        assert first == "a line of its own"
        return lines

    return lines_of


def test_a_file_gets_a_line_for_each_ten_per_cent(counted):
    lines = counted(1640, 1640)
    assert [re.sub(r", \d\d:\d\d gone.*", "", line) for line in lines] == [
        f"PCA landscape: {164 * share}/1640 points ({10 * share} %)" for share in range(1, 11)
    ]
    assert all(re.search(r"\), \d\d:\d\d gone, about \d\d:\d\d left$", line) for line in lines[:-1])
    assert re.search(r"\), \d\d:\d\d gone$", lines[-1])


@pytest.mark.parametrize(
    ("total", "count", "done", "last", "length"),
    [
        (3, 3, 0, "3/3 points (100 %)", 3),
        (100, 25, 0, "25/100 points (25 %)", 3),  # interrupted
        (100, 40, 60, "100/100 points (100 %)", 4),  # continued
        (100, 0, 100, None, 0),  # nothing was left
        (None, 25, 0, "25 points", 1),
        (1, 1, 0, "1/1 point (100 %)", 1),
    ],
)
def test_the_last_line_says_how_far_it_came(counted, total, count, done, last, length):
    lines = counted(total, count, done)
    assert len(lines) == length
    if last is not None:
        assert lines[-1].startswith(f"PCA landscape: {last}, ")


def test_a_long_wait_is_told(capsys):
    now = 0.0
    with ProgressLines(1000, "point", name="slow", clock=lambda: now) as bar:
        for now in (1.0, 2.0, 700.0, 701.0, 1500.0):  # noqa: B007
            bar.update(10)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "slow: 30/1000 points (3 %), 11:40 gone, about 6:17:13 left",
        "slow: 50/1000 points (5 %), 25:00 gone, about 7:55:00 left",
    ]


def test_a_terminal_gets_a_line_that_moves(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar(4, "point") as bar:
        for _ in range(4):
            bar.update()
    assert "\r" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()
