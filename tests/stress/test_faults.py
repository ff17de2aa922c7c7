"""Kills, stops and starves what a survey consists of, for real and at random moments; see ``faults``.

STRESS_TRIALS sets how often each fault is tried; when absent, a killed actor is tried three times and all others, which
take 10 to 30 seconds each, once. A seed is printed with each trial; STRESS_SEED repeats it.
"""

import os
import secrets

import pytest
from faults import FAULTS
from trials import run_trial

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the two random directions have a cosine:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"),
]

CASES = [
    pytest.param(fault, number, id=f"{fault.name} {number}")
    for fault in FAULTS
    for number in range(int(os.environ.get("STRESS_TRIALS", fault.repeats)))
]


@pytest.mark.parametrize(("fault", "number"), CASES)
def test_a_survey_survives(fault, number):
    seed = int(os.environ.get("STRESS_SEED", secrets.randbelow(10**6))) + number
    trial = run_trial(fault, seed)
    assert trial.cost is not None, trial
