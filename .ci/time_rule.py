"""Refuses tests that depend on time:  python .ci/time_rule.py   (make lint).

A line of tests/ that sleeps or reads a clock must end with "# time: <reason>", and few may. Benchmarks are free.
"""

import re
import sys
from pathlib import Path

MOST = 40
_CLOCK = re.compile(r"sleep\(|wait_for_timeout|perf_counter|process_time|thread_time|monotonic|time\.time\(|user_time")
_REASON = re.compile(r"# time: \S.*$")
_REFUSED = {
    re.compile(r"from time import"): "import time, so that a line shows that it reads a clock",
    re.compile(r"\.wait\(\s*[\d.]+\s*\)"): "wait with PATIENCE of tests/support/waiting.py",
    re.compile(
        r"\btimeout=\s*\d(?:\.\d*)?\s*[,)]"
    ): "a busy machine takes longer: PATIENCE of tests/support/waiting.py",
}


def complaints(files: dict[str, str]) -> list[str]:
    """Returns what is wrong with the tests' sources.

    Args:
        files: their texts by path.
    """
    found, with_reason = [], []
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{path}:{number}"
            if _CLOCK.search(line):
                if _REASON.search(line):
                    with_reason.append(place)
                else:
                    found.append(
                        f"{place}: depends on time; wait for a condition or open a gate (tests/support/waiting.py)"
                    )
            found += [f"{place}: {remedy}" for pattern, remedy in _REFUSED.items() if pattern.search(line)]
    if len(with_reason) > MOST:
        found.append(
            f"{len(with_reason)} lines depend on time with a reason, at most {MOST} may: {', '.join(with_reason)}"
        )
    return found


def main(root: Path) -> int:
    """Prints the complaints; returns 1 if there are any."""
    paths = sorted(path for path in (root / "tests").rglob("*.py") if "benchmarks" not in path.parts)
    found = complaints({str(path.relative_to(root)): path.read_text() for path in paths})
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path()))
