"""Where things lie in this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent
DATA = ROOT / "tests" / "data"
