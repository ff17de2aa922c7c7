"""The main flows under a simulated Windows: all work but one, which Windows refuses."""

import re

import pytest
from flows import NAMES

SYSTEM = "win"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.room(
        "collectors/files/system.py",
        "workers/hardware.py",
        "tests/other_systems/simulated/sim_core.py",
        "tests/other_systems/simulated/win.py",
    ),
    pytest.mark.timeout(1500),  # all flows run before the first test, which takes a minute, on a busy machine ten
]
# No program replaces a file there that somebody has open.
REFUSED = "plot with open reader"
REFUSAL = (
    r"collectors\.errors\.FileWriteError: \S*surface\.h5 cannot be written: a program, perhaps this one, has it open, "
    r"and Windows replaces no open file; close it there\. What was there is untouched\."
)


@pytest.mark.parametrize("name", [name for name in NAMES if name != REFUSED])
def test_a_flow_works(ended, name):
    code, said = ended[name]
    assert code == 0, said


def test_the_one_that_windows_refuses_says_what_to_do(ended):
    code, said = ended[REFUSED]
    assert code != 0
    assert re.search(REFUSAL, said), said


@pytest.mark.parametrize("harm", ["SENDS CTRL-C", "os.open without O_BINARY", "text file in cp1252"])
def test_no_console_is_interrupted_and_no_file_translated(ended, folder, harm):
    noted = (folder / "refused.log").read_text(errors="replace")
    assert "Access is denied" in noted  # the one that is refused
    assert [line for line in noted.splitlines() if harm in line] == []
