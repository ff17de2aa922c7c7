"""Runs the public cases with the commit before they were mended: each of them must fail there.

python tests/public_cases/before.py [CASE...]
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BEFORE = "27b2dde"


def main(names):
    """Prints the cases that pass with the earlier commit, and returns how many these are."""
    cases = [HERE / name for name in names] or sorted(HERE.glob("test_*.py"))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, BEFORE], cwd=ROOT, check=True)
        try:
            target = tree / "tests" / HERE.name
            target.mkdir()
            for case in cases:
                shutil.copy(case, target)
            passing = [case.name for case in cases if _passes(tree, target / case.name)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    print(f"{len(cases)} cases, of which {len(passing)} pass with {BEFORE}: {', '.join(passing) or 'none'}")
    return len(passing)


def _passes(tree, case):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", case]
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    reasons = [line for line in ended.stdout.splitlines() if line.startswith("E  ")]
    print(case.name, "passes" if ended.returncode == 0 else f"fails: {(reasons or ['?'])[0][1:].strip()}", flush=True)
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
