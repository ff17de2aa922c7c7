"""Refuses questions about the system outside the two modules that ask:  python .ci/system_rule.py   (make lint)."""

import re
import sys
from pathlib import Path

# Files and processes; cores, memory and GPUs.
ASK = ("collectors/files/system.py", "workers/hardware.py")
_QUESTION = re.compile(
    r"sys\.platform|\bos\.name\b|platform\.system|\b(has|get)attr\(os\b|\bfcntl\b|\bmsvcrt\b|sched_[gs]etaffinity|/proc\b"
    r"|\bPath\(.{0,2}/(dev|sys)\b|\bimport resource\b"
)


def complaints(files: dict[str, str]) -> list[str]:
    """Returns what is wrong with the product's sources.

    Args:
        files: their texts by path.
    """
    return [
        f"{path}:{number}: {found[0]!r} differs between systems; ask {' or '.join(ASK)}, or add there what is missing"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if path not in ASK and (found := _QUESTION.search(line))
    ]


def main(root: Path) -> int:
    """Prints the complaints; returns 1 if there are any."""
    paths = [path for room in ("collectors", "workers", "landscape") for path in sorted((root / room).rglob("*.py"))]
    found = complaints({path.relative_to(root).as_posix(): path.read_text() for path in paths})
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path()))
