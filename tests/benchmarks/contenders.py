"""Runs one contender in processes of its own, and says how long it took."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
# Where our compiler keeps its code and its records, and what would lead past them.
CACHE_VARIABLE = "XDG_CACHE_HOME"
_OTHER_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass(frozen=True)
class Run:
    """One run of a contender: seconds in all and of measuring, points, and the grid's loss (None: in a landscape file).

    Several processes count from the start of the first to the end of the last; ``printed`` is the first one's.
    """

    wall: float
    seconds: float
    points: int
    printed: dict[str, Any]
    loss: np.ndarray | None = None

    @property
    def start_up(self) -> float:
        """Seconds in which it did not measure: imports, data, workers, compiling, and its end."""
        return self.wall - self.seconds

    @property
    def rate(self) -> float:
        return self.points / self.seconds


@dataclass(frozen=True)
class Medians:
    """Medians over runs, each with its spread: (smallest, largest)."""

    wall: float
    start_up: float
    rate: float
    points: int
    count: int
    wall_range: tuple[float, float]
    rate_range: tuple[float, float]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Medians:
        walls, rates = [run.wall for run in runs], [run.rate for run in runs]
        return cls(
            wall=statistics.median(walls),
            start_up=statistics.median(run.start_up for run in runs),
            rate=statistics.median(rates),
            points=round(statistics.median(run.points for run in runs)),
            count=len(runs),
            wall_range=(min(walls), max(walls)),
            rate_range=(min(rates), max(rates)),
        )

    def wall_of(self, points: int) -> float:
        """Returns the seconds that a whole grid takes, extrapolated from a part of it."""
        return self.start_up + points / self.rate


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Other programs that keep a core busy each."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def axis(size: int) -> list[float]:
    """Returns the coordinates of a square grid, those that every contender measures."""
    return [float(value) for value in np.linspace(-1, 1, size)]


def run_ours(
    work: Path, coordinates: list[float], output: Path, *, devices: list[int], cache: Path | None = None
) -> Run:
    """Measures a grid with this project as it is; the landscape is left in ``output``.

    An empty cache of compiled code is what a new user has; that of an earlier run is what everybody has from then on.
    """
    wanted = {"work": str(work), "axis": coordinates, "devices": devices, "output": str(output)}
    with tempfile.TemporaryDirectory(prefix="landscape-bench-cold-") as empty:
        environment = {name: value for name, value in os.environ.items() if name != _OTHER_CACHE}
        environment[CACHE_VARIABLE] = str(cache or empty)
        wall, (printed,) = _run([[sys.executable, str(HERE / "ours.py"), json.dumps(wanted)]], environment)
    return Run(wall, printed["seconds"], printed["measured"], printed)


def run_peer(python: Path, name: str, work: Path, size: int, batch_size: int, processes: int = 1) -> Run:
    """Measures a grid with another tool; several processes have one thread each, and a part of the rows."""
    wanted = {"name": name, "work": str(work), "steps": size, "batch_size": batch_size}
    commands = []
    for part in range(processes):
        own = wanted if processes == 1 else wanted | {"part": part, "parts": processes, "threads": 1}
        commands.append([str(python), str(HERE / "peers.py"), json.dumps(own)])
    wall, printed = _run(commands, os.environ)
    loss = np.empty((size, size))
    for part, item in enumerate(printed):
        loss[part::processes] = item["loss"]
    points = sum(item["points"] for item in printed)
    return Run(wall, max(item["seconds"] for item in printed), points, printed[0], loss)


def _run(commands: list[list[str]], environment: Mapping[str, str]) -> tuple[float, list[dict[str, Any]]]:
    """Runs processes side by side; returns the seconds until the last one's end, and what each printed last."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for index, command in enumerate(commands):
            # Files, because a full pipe would stop a process until its turn to be read has come.
            with Path(folder, f"{index}.out").open("w") as said, Path(folder, f"{index}.err").open("w") as failed:
                processes.append(subprocess.Popen(command, stdout=said, stderr=failed, env=environment))
        for process in processes:
            process.wait()
        wall = time.perf_counter() - start
        for index, process in enumerate(processes):
            if process.returncode:
                error = Path(folder, f"{index}.err").read_text()[-4000:]
                raise RuntimeError(f"{commands[index][1:]} failed with {process.returncode}:\n{error}")
        said = [Path(folder, f"{index}.out").read_text() for index in range(len(commands))]
    return wall, [json.loads(text.splitlines()[-1]) for text in said]
