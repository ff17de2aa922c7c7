"""Kills, stops and starves what a survey consists of, for real and at random moments; see ``faults``.

Each fault is tried STRESS_TRIALS times, by default once; ``make stress`` tries it twenty times. The seeds follow from
the number in ``tests/rotation``, so that each change tries others; STRESS_SEED gives another one.
Trials mostly wait, so that several may run side by side (``--numprocesses 3``).
"""

import os

import pytest
from faults import FAULTS
from places import turn
from trials import run_trial

pytestmark = [
    pytest.mark.slow,
    # A trial is two surveys of up to sixteen seconds and more, each of which may start a Ray of its own.
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:the two random directions have a cosine:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"),
]

CASES = [
    pytest.param(fault, number, id=f"{fault.name} {number}")
    for fault in FAULTS
    for number in range(int(os.environ.get("STRESS_TRIALS", "1")))
]


@pytest.mark.parametrize(("fault", "number"), CASES)
def test_a_survey_survives(fault, number):
    seed = int(os.environ.get("STRESS_SEED", 1000 * turn())) + number
    trial = run_trial(fault, seed)
    assert trial.cost is not None, trial
