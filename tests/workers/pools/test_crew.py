"""What is said of a worker that is given up."""

from types import SimpleNamespace

import pytest

from workers.errors import PoolError
from workers.pools.crew import Crew


def crew_of(*deaths):
    crew = Crew(None)
    crew.workers = [
        SimpleNamespace(label=f"the worker of device {place}", deaths=count, leave=lambda: None)
        for place, count in enumerate(deaths)
    ]
    return crew


@pytest.mark.parametrize(
    ("deaths", "text"),
    [
        ((1, 0), r"^the worker of device 0, which died once, is given up; the other one goes on\. no place$"),
        ((12, 0, 0), r"^the worker of device 0, which died 12 times, is given up; the other 2 go on\. no place$"),
        ((0, 0), r"^the worker of device 0 is given up; the other one goes on\. no place$"),
    ],
)
def test_a_warning_counts_deaths_and_those_that_go_on(deaths, text):
    crew = crew_of(*deaths)
    with pytest.warns(UserWarning, match=text):
        crew._drop(crew.workers[0], PoolError("no place"))
    assert len(crew.workers) == len(deaths) - 1


def test_the_last_one_ends_the_run():
    crew = crew_of(3)
    with pytest.raises(PoolError, match=r"the last worker died .* run the same call again to go on.*no place"):
        crew._drop(crew.workers[0], PoolError("no place"))
