"""The long fault test: ``python tests/stress/run.py --trials 20 --output docs/stress.md``.

Each trial is recorded as it ends; the same command goes on where an ended one stopped.
"""

import argparse
import os
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]

from faults import FAULTS, LONG_SECONDS, LONG_SIZE, SECONDS, SIZE  # noqa: E402
from trials import Record, run_trial, table  # noqa: E402

PAGE = """# Faults

Written by `python tests/stress/run.py --trials {trials} --seed {seed}` on {date}, on {cores} cores. Each trial runs
a real survey in a separate process and causes the fault once, at a random moment. A survey has two workers (three
on a cluster of three nodes) and {size} x {size} points of {milliseconds:.0f} ms, or {long_size} x {long_size} of
{long_milliseconds:.0f} ms where it does not survive, unless the fault needs others. After each one, the finished file
is byte for byte that of an undisturbed run (with smaller batches: equal to 1e-6), no process, temporary file, lock or
session directory is left, and nothing is measured twice except chunks that were in progress.

Each column has the worst case of all trials. *Lost* are points that were measured and whose values did not reach the
file: at most one flush interval (5 s) and the chunks in progress (a second each). *Seconds to recover* count from the
fault until the replacement has measured its first point: a new worker, or the next run, which starts its workers
first; for faults in a point, they are the longest pause between two points.

{table}

{failures}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--only", default="", help="faults whose names contain this text")
    parser.add_argument("--output", type=Path, help="where the table is written; printed when absent")
    parser.add_argument("--record", type=Path, help="of all trials, a line each; those in it are not tried again")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="the two random directions have a cosine")
    record = Record(arguments.record)
    for fault in FAULTS:
        for seed in range(arguments.seed, arguments.seed + arguments.trials):
            if arguments.only in fault.name and (fault.name, seed) not in record:
                record.add(run_trial(fault, seed, **fault.long))
    failures = [f"- {trial.fault}, seed {trial.seed}: {trial.failure}" for trial in record.trials if trial.failure]
    page = PAGE.format(
        trials=arguments.trials,
        seed=arguments.seed,
        date=datetime.now(UTC).date(),
        cores=len(os.sched_getaffinity(0)),
        size=SIZE,
        milliseconds=1000 * SECONDS,
        long_size=LONG_SIZE,
        long_milliseconds=1000 * LONG_SECONDS,
        table=table(record.trials, [fault.name for fault in FAULTS]),
        failures="No trial failed." if not failures else "Failed:\n\n" + "\n".join(failures),
    )
    if arguments.output:
        arguments.output.write_text(page)
    print(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
