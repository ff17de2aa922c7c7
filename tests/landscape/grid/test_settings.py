import pytest
from false_clock import FalseClock

from landscape.record.run import Run, duration_seconds, duration_text


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90.0), (0.5, 0.5), ("90s", 90.0), ("30min", 1800.0), ("1.5 h", 5400.0), ("2d", 172800.0), ("45", 45.0)],
)
def test_durations(given, seconds):
    assert duration_seconds("budget", given) == seconds


def test_what_is_left_of_a_budget_is_shared(monkeypatch):
    clock = FalseClock(monkeypatch)
    run = Run.checked({"budget": 60, "progress": False})
    clock.go_on(20)
    part = run.part(4)
    assert (part.budget, part.limit, part.left) == (60.0, 10.0, 10.0)
    clock.go_on(11)
    assert part.is_late
    assert not run.is_late
    assert (list(part.in_time([1])), part.stopped) == ([], True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0052, "5.2 ms"),
        (4.21, "4.2 s"),
        (42.4, "42 s"),
        (100, "1.7 min"),
        (180, "3 min"),
        (1800, "30 min"),
        (7200, "2 h"),
        (260000, "3.01 days"),
    ],
)
def test_durations_as_people_say_them(seconds, text):
    assert duration_text(seconds) == text
