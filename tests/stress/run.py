"""The long fault test: ``python tests/stress/run.py --trials 20 --output docs/stress.md``."""

import argparse
import os
import sys
import time
import traceback
import warnings
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]

from faults import FAULTS, SECONDS  # noqa: E402
from trials import run_trial, table  # noqa: E402

PAGE = """# Faults

Written by `python tests/stress/run.py --trials {trials} --seed {seed}` on {date}, on {cores} cores, in {minutes:.0f}
minutes. Each trial runs a real survey in a process of its own (two workers, {milliseconds:.0f} ms a point) and
strikes once, at a random moment. After each one, the finished file is byte for byte the undisturbed one (with smaller
batches: equal to 1e-6), no process, temporary file, lock or session directory is left, and nothing is measured twice
but chunks that were under way.

Each column has the worst case of all trials. *Lost* are points that were measured and whose values did not reach the
file: at most one flush interval (5 s) and the chunks under way (a second each). *Seconds to recover* count from the
blow until the replacement has measured its first point: a new actor, or the next run, which starts a private Ray first;
for faults in a point, they are the longest pause between two points.

{table}

{failures}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--only", default="", help="faults whose names contain this text")
    parser.add_argument("--output", type=Path, help="where the table is written; printed when absent")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="the two random directions have a cosine")
    start, trials, failures = time.monotonic(), [], []
    for fault in FAULTS:
        if arguments.only not in fault.name:
            continue
        for seed in range(arguments.seed, arguments.seed + arguments.trials):
            try:
                trials.append(run_trial(fault, seed, **fault.long))
            except Exception as error:
                traceback.print_exc()
                failures.append(f"- {fault.name}, seed {seed}: {str(error).splitlines()[0]}")
    page = PAGE.format(
        trials=arguments.trials,
        seed=arguments.seed,
        date=datetime.now(UTC).date(),
        cores=len(os.sched_getaffinity(0)),
        minutes=(time.monotonic() - start) / 60,
        milliseconds=1000 * SECONDS,
        table=table(trials),
        failures="No trial failed." if not failures else "Failed:\n\n" + "\n".join(failures),
    )
    if arguments.output:
        arguments.output.write_text(page)
    print(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
