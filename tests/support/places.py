"""Where things lie in this repository."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent
DATA = ROOT / "tests" / "data"


def turn():
    """Returns the number of the change that is tested: what is too long for each change is shared out over several."""
    return int(re.search(r"^number (\d+)$", (ROOT / "tests" / "rotation").read_text(), re.MULTILINE)[1])
