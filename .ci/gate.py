"""What every change must pass: stages, each a target of make, and a table of their seconds.

python .ci/gate.py              what the change can break, and a share of the rest (.ci/run)
python .ci/gate.py --all        everything, with coverage and executed shapes (make test-all)
python .ci/gate.py --list       which slow tests and environments a run would choose; nothing is run
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import rotation
import selection
from second_chance import PASSED_ALONE

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Stage:
    """Targets of make, separated by spaces, with variables, options and files for them, and how often to try them."""

    targets: str
    more: tuple[str, ...] = ()
    tries: int = 1


@dataclass(frozen=True)
class Result:
    """How a stage ended."""

    stage: Stage
    status: int
    seconds: float
    summary: str
    passed_alone: tuple[str, ...]
    failed: tuple[str, ...]


def stages(choice: selection.Selection, number: int, notes: Path, everything: bool) -> Iterator[Stage]:
    """Yields what runs for a change."""
    chosen = [item for item in selection.ENVIRONMENTS if everything or item.target in choice.environments]
    chosen += [item for item in selection.VERSIONS if item.target in choice.environments]
    # Packages come from a server and go to a disk: environments are made side by side, and so runs what takes one core.
    beside = ("--jobs=2", "--keep-going", "--output-sync=target")
    # The last ones are built from source, which takes longest.
    made = dict.fromkeys(f"{item.folder}/.installed" for item in reversed(chosen) if item.folder)
    # A server that does not answer once is no reason to repeat an hour.
    yield Stage("environment", ("--jobs=3", "--keep-going", *made), tries=2)
    yield Stage("types lint demo", beside)
    yield Stage("test-covered" if everything else "test")
    files = notes / "chosen"
    files.write_text("\n".join(choice.tests))
    yield Stage(
        "test-slow",
        () if everything else (f"CHOSEN=--chosen-files={files} --share={number % rotation.SHARES}/{rotation.SHARES}",),
    )
    yield from (Stage(item.target) for item in chosen if not item.one_core)
    if single := " ".join(item.target for item in chosen if item.one_core):
        yield Stage(single, beside)


def run(stage: Stage, root: Path = ROOT) -> Result:
    """Runs a stage, shows what it prints, and keeps how pytest closed, what failed and what passed only when alone."""
    print(f"\n=== make {stage.targets}", flush=True)
    begun = time.monotonic()
    command = ["make", "--no-print-directory", *stage.targets.split(), *stage.more]
    summaries, alone, failed, in_list = [], [], {}, False
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            in_list = line.startswith(PASSED_ALONE) or (in_list and line.startswith("- "))
            if in_list and line.startswith("- "):
                alone.append(line.strip())
                failed.pop(line.split("`")[1], None)
            if line.startswith("SKIPPED: ") or (line.startswith("=") and (" passed" in line or " failed" in line)):
                summaries.append(line.strip("= \n"))
            if line.startswith(("FAILED tests/", "ERROR tests/")):
                test = line.strip().partition(" ")[2].partition(" - ")[0]
                failed[test] = line.strip()
    seconds = time.monotonic() - begun
    if process.returncode and stage.tries > 1:
        print(f"make {stage.targets} failed ({process.returncode}): what is missing is tried again", flush=True)
        again = run(replace(stage, tries=stage.tries - 1), root)
        return replace(again, seconds=seconds + again.seconds)
    summary = "; alone: ".join(summaries)
    return Result(stage, process.returncode, seconds, summary, tuple(alone), tuple(failed.values()))


def table(results: list[Result]) -> str:
    """Returns the stages with how they ended and their seconds, and the tests that failed."""
    rows = [
        (
            f"make {result.stage.targets}",
            "passed" if result.status == 0 else f"FAILED ({result.status})",
            f"{result.seconds:.0f} s",
            result.summary,
        )
        for result in results
    ]
    rows.append(
        (
            "all",
            "passed" if all(r.status == 0 for r in results) else "FAILED",
            f"{sum(r.seconds for r in results):.0f} s",
            "",
        )
    )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    alone = [line for result in results for line in result.passed_alone]
    if alone:
        lines += ["", PASSED_ALONE, *alone]
    # Who reads only the end of a long log sees what to mend.
    if failed := [f"make {result.stage.targets}: {line}" for result in results for line in result.failed]:
        lines += ["", *failed]
    return "\n".join(lines)


def main() -> int:
    """Runs the stages; returns 0 if all passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    choice, number = selection.of_working_tree(ROOT)
    free = shutil.disk_usage(ROOT).free / 1e9
    print(f"{selection.text(choice, number)}\n{free:.0f} GB of this disk are free", flush=True)
    if arguments.list:
        return 0
    results = []
    with tempfile.TemporaryDirectory() as notes:
        for stage in stages(choice, number, Path(notes), arguments.all):
            results.append(run(stage))
            if results[-1].status and stage.targets == "environment":
                break
    print("\n" + table(results), flush=True)
    return 0 if all(result.status == 0 for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
