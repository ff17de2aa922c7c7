"""Runs faults several times, each from a seed of its own, and keeps what they cost."""

import json
import shutil
import tempfile
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from faults import Cost


@dataclass(frozen=True)
class Trial:
    """One trial, its random moment and place from a seed: what it cost (None where it failed) and why it failed."""

    fault: str
    seed: int
    cost: Cost | None
    failure: str = ""

    def __str__(self):
        said = self.failure
        if self.cost is not None:
            said = (
                f"{self.cost.lost} points lost, {self.cost.repeated} measured again, recovered in "
                f"{self.cost.seconds:.1f} s"
            )
        return f"{self.fault} (seed {self.seed}): {said}"


class Record:
    """The trials so far, in a file (or none) of one JSON object to a line."""

    def __init__(self, path=None):
        self.trials = []
        self._path = path
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                fields = json.loads(line)
                cost = fields.pop("cost")
                self.trials.append(Trial(**fields, cost=Cost(**cost) if cost else None))

    def __contains__(self, name_and_seed):
        return any((trial.fault, trial.seed) == name_and_seed for trial in self.trials)

    def add(self, trial):
        self.trials.append(trial)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(trial)) + "\n")


def run_trial(fault, seed, **more):
    """Runs one trial; says which, before and after, so that a failure can be repeated from its seed."""
    print(f"{fault.name}, seed {seed} ...", flush=True)
    # Unix sockets of a private Ray lie elsewhere, so this folder may be anywhere.
    folder = Path(tempfile.mkdtemp(prefix="landscape-trial-"))
    cost, failure = None, ""
    try:
        cost = fault.strike(folder, np.random.default_rng(seed), **more)
    except Exception as error:
        traceback.print_exc()
        failure = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trial = Trial(fault.name, seed, cost, failure)
    print(trial, flush=True)
    return trial


def table(trials, names):
    """Returns the summary in Markdown: of each fault how many trials, and the worst case of each cost."""
    lines = [
        "| fault | trials | points lost | points measured again | seconds to recover |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        costs = [trial.cost for trial in trials if trial.fault == name and trial.cost is not None]
        if costs:
            worst = (max(cost.lost for cost in costs), max(cost.repeated for cost in costs))
            slowest = max(cost.seconds for cost in costs)
            lines.append(f"| {name} | {len(costs)} | {worst[0]} | {worst[1]} | {slowest:.1f} |")
    return "\n".join(lines)
