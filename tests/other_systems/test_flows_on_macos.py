"""The main flows under a simulated macOS: all work."""

import pytest
from flows import NAMES

SYSTEM = "mac"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.room(
        "collectors/files/system.py",
        "workers/hardware.py",
        "tests/other_systems/simulated/sim_core.py",
        "tests/other_systems/simulated/mac.py",
    ),
    pytest.mark.timeout(1500),  # all flows run before the first test, which takes a minute, on a busy machine ten
]


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_works(ended, name):
    code, said = ended[name]
    assert code == 0, said


def test_all_flows_are_there():
    assert len(NAMES) == 48
