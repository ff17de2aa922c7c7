"""Runs pytest; tests that failed run once more, alone, in one process.

python .ci/second_chance.py OPTIONS OF PYTEST ...

What fails twice fails. What passes only when alone is listed, in lines for tests/passed_alone.md, where it is committed
with cause and cure; a test that stands there already fails. Only the standard library and pytest are needed.
"""

import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LISTED = Path("tests/passed_alone.md")
# Above the tests that passed so; .ci/gate.py finds them by it.
PASSED_ALONE = f"passed only when alone (for {LISTED}, with cause and cure):"
# More tests than this do not fail by accident: they fail at once.
MOST_RUN_AGAIN = 20
_TESTS_FAILED, _NONE_CHOSEN = 1, 5


def main(options: list[str]) -> int:
    """Returns 0 if all tests passed, some perhaps only when alone; a listed one must not. Else 1 or pytest's status."""
    with tempfile.TemporaryDirectory() as notes:
        status, failed = _run(options, Path(notes) / "first")
        if status != _TESTS_FAILED or not failed:
            return 0 if status == _NONE_CHOSEN and any(option.startswith("--share") for option in options) else status
        if len(failed) > MOST_RUN_AGAIN:
            print(f"\n{len(failed)} tests failed, more than {MOST_RUN_AGAIN}: none gets a second chance.", flush=True)
            return status
        print(f"\nAlone, in one process, once more: {len(failed)} that failed", flush=True)
        again, failed_twice = _run(failed, Path(notes) / "alone")
    passed_alone = [test for test in failed if test not in failed_twice]
    if again not in (0, _TESTS_FAILED):
        return again
    listed = functions_listed(LISTED.read_text() if LISTED.is_file() else "")
    known = [test for test in passed_alone if _function(test) in listed]
    if passed_alone:
        print(f"\n{PASSED_ALONE}")
        today = datetime.date.today().isoformat()
        print(*(f"- `{test}` ({today}): cause: ...; cure: ..." for test in passed_alone), sep="\n")
    if known:
        print(f"\nThese stand in {LISTED} already, so their cure did not help:", *known, sep="\n- ")
    if failed_twice:
        print("\nfailed twice:", *failed_twice, sep="\n- ")
    sys.stdout.flush()
    return 1 if known or failed_twice else 0


def functions_listed(text: str) -> set[str]:
    """Returns the test functions that a list names: those between the first backticks of its items."""
    return {_function(test) for test in re.findall(r"^- `([^`]+)`", text, re.MULTILINE)}


def _function(test: str) -> str:
    """Returns a test's name without the case: another case of a listed test is the same test."""
    return test.partition("[")[0]


def _run(arguments: list[str], notes: Path) -> tuple[int, list[str]]:
    """Runs pytest; returns its exit status and the tests that failed."""
    command = [sys.executable, "-m", "pytest", "--no-cov", "-o", f"cache_dir={notes}", *arguments]
    if any(argument.startswith("--cov") for argument in arguments):
        command.remove("--no-cov")
    status = subprocess.run(command, check=False).returncode
    failures = notes / "v" / "cache" / "lastfailed"
    return status, list(json.loads(failures.read_text())) if failures.is_file() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
