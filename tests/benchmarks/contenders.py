"""Runs one contender in a process of its own, and says how long it took."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """One run of a contender.

    Attributes:
        wall: seconds from the start of its process to its end.
        seconds: of these, those in which it measured.
        points: how many it measured.
        printed: what it says about itself.
    """

    wall: float
    seconds: float
    points: int
    printed: dict[str, Any]

    @property
    def start_up(self) -> float:
        """Seconds in which it did not measure: imports, data, workers, compiling, and its end."""
        return self.wall - self.seconds

    @property
    def rate(self) -> float:
        """Points per second while it measured."""
        return self.points / self.seconds


@dataclass(frozen=True)
class Medians:
    """Medians over runs, each with its spread: (smallest, largest)."""

    wall: float
    start_up: float
    rate: float
    points: int
    wall_range: tuple[float, float]
    rate_range: tuple[float, float]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Medians:
        """Returns the medians of runs."""
        walls, rates = [run.wall for run in runs], [run.rate for run in runs]
        return cls(
            wall=statistics.median(walls),
            start_up=statistics.median(run.start_up for run in runs),
            rate=statistics.median(rates),
            points=round(statistics.median(run.points for run in runs)),
            wall_range=(min(walls), max(walls)),
            rate_range=(min(rates), max(rates)),
        )

    def wall_of(self, points: int) -> float:
        """Returns the seconds that a whole grid takes, extrapolated from a part of it."""
        return self.start_up + points / self.rate


def axis(size: int) -> list[float]:
    """Returns the coordinates of a square grid, those that every contender measures."""
    return [float(value) for value in np.linspace(-1, 1, size)]


def run_ours(
    work: Path,
    coordinates: list[float],
    output: Path,
    *,
    devices: list[int],
    sampling: str = "full",
    compile: bool | str = "auto",
) -> Run:
    """Measures a grid with this project; the landscape is left in ``output``."""
    wanted = {
        "work": str(work),
        "axis": coordinates,
        "sampling": sampling,
        "devices": devices,
        "output": str(output),
        "compile": compile,
    }
    wall, printed = _run([sys.executable, str(HERE / "ours.py"), json.dumps(wanted)])
    return Run(wall, printed["seconds"], printed["measured"], printed)


def run_peer(python: Path, name: str, work: Path, size: int) -> Run:
    """Measures a grid with another tool."""
    wall, printed = _run([str(python), str(HERE / "peers.py"), name, str(work), str(size)])
    return Run(wall, printed["seconds"], printed["points"], printed)


def _run(command: list[str]) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{command[1:3]} failed with {done.returncode}:\n{done.stderr[-4000:]}")
    return wall, json.loads(done.stdout.splitlines()[-1])
