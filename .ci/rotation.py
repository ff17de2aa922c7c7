"""Where a change starts, and whose turn it is in the rotation of tests: the file tests/rotation.

python .ci/rotation.py      (make change) when work on a change begins, and where the file is in conflict
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

FILE = Path("tests/rotation")
# So many changes run all slow tests, each change its share of those that it cannot break.
SHARES = 5
_TEXT = """\
# Written by `make change` when work on a change begins; .ci/gate.py reads it.
number {number}
base {base}
"""


@dataclass(frozen=True)
class Rotation:
    """The number of a change, and the commit that it starts from."""

    number: int
    base: str

    def write(self, root: Path) -> None:
        """Writes the file of a project."""
        (root / FILE).write_text(_TEXT.format(number=self.number, base=self.base))


def read(root: Path) -> Rotation:
    """Returns what the file says; where it is in conflict, the higher number.

    Raises:
        ValueError: the file is missing, or names no number or no commit.
    """
    text = (root / FILE).read_text() if (root / FILE).is_file() else ""
    numbers = re.findall(r"^number (\d+)$", text, re.MULTILINE)
    bases = re.findall(r"^base ([0-9a-f]{7,64})$", text, re.MULTILINE)
    if not (numbers and bases):
        raise ValueError(f"{FILE} must have a line 'number N' and a line 'base COMMIT'; write it with: make change")
    return Rotation(max(map(int, numbers)), bases[-1])


def next_change(root: Path) -> Rotation:
    """Returns the rotation of a change that begins now, or that settles a conflict of the file."""
    number = read(root).number + 1 if (root / FILE).is_file() else 0
    return Rotation(number, _landed_onto(root))


def base(root: Path, rotation: Rotation) -> str | None:
    """Returns the commit that the change is compared with, or None: then everything counts as touched.

    ``$GATE_BASE`` goes before the file. A commit that is not there, or no ancestor, is none.
    """
    commit = os.environ.get("GATE_BASE") or rotation.base
    known = git(root, "merge-base", "--is-ancestor", commit, "HEAD")
    return commit if known is not None else None


def changed(root: Path, commit: str) -> list[str]:
    """Returns the paths that differ from a commit, in the working tree too, both names of what was renamed."""
    differing = git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if differing is None or untracked is None:
        raise RuntimeError(f"git cannot compare {root} with {commit}")
    return sorted({path for path in (differing + untracked).split("\0") if path})


def git(root: Path, *arguments: str) -> str | None:
    """Returns what git prints, or None if it fails."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _landed_onto(root: Path) -> str:
    """Returns the commit that the work is put onto: in a rebase or a merge the other side's, otherwise HEAD."""
    folder = root / (git(root, "rev-parse", "--git-dir") or ".git").strip()
    for onto in ("rebase-merge/onto", "rebase-apply/onto", "MERGE_HEAD"):
        if (folder / onto).is_file():
            return (folder / onto).read_text().split()[0]
    head = git(root, "rev-parse", "HEAD")
    if head is None:
        raise RuntimeError(f"{root.resolve()} is no git repository with a commit")
    return head.strip()


if __name__ == "__main__":
    beginning = next_change(Path())
    beginning.write(Path())
    print(f"{FILE}: number {beginning.number}, compared with {beginning.base}")
