"""Runs faults several times, each from a seed of its own, and keeps what they cost."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from faults import Cost


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        fault: the fault's name.
        seed: from which its random moment and place come.
        cost: what it cost.
        seconds: how long the trial took.
    """

    fault: str
    seed: int
    cost: Cost
    seconds: float

    def __str__(self):
        cost = self.cost
        return (
            f"{self.fault} (seed {self.seed}): {cost.lost} points lost, {cost.repeated} measured again, recovered in "
            f"{cost.seconds:.1f} s; the trial took {self.seconds:.0f} s"
        )


def run_trial(fault, seed, **more):
    """Runs one trial; says which, before and after, so that a failure can be repeated from its seed."""
    print(f"{fault.name}, seed {seed} ...", flush=True)
    # Unix sockets of a private Ray lie elsewhere, so this folder may be anywhere.
    folder = Path(tempfile.mkdtemp(prefix="landscape-trial-"))
    start = time.monotonic()
    try:
        cost = fault.strike(folder, np.random.default_rng(seed), **more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trial = Trial(fault.name, seed, cost, time.monotonic() - start)
    print(trial, flush=True)
    return trial


def table(trials):
    """Returns the summary in Markdown: of each fault how many trials, and the worst case of each cost."""
    lines = [
        "| fault | trials | points lost | points measured again | seconds to recover |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in dict.fromkeys(trial.fault for trial in trials):
        costs = [trial.cost for trial in trials if trial.fault == name]
        worst = (max(cost.lost for cost in costs), max(cost.repeated for cost in costs))
        slowest = max(cost.seconds for cost in costs)
        lines.append(f"| {name} | {len(costs)} | {worst[0]} | {worst[1]} | {slowest:.1f} |")
    return "\n".join(lines)
