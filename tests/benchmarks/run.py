"""Compares this project with other landscape tools: ``make bench``.

All contenders do the same work in the same run, in turn, each in a process of its own; what counts is the median of
three. The other tools live in an environment of their own (``.venv-peers``).
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from contenders import Medians, Run, axis, run_ours, run_peer
from networks import prepare_work
from results_page import Goal, Results, Row, machine_lines, page, version_lines

from landscape import Landscape

PEERS = ("Li et al.'s loop", "loss-landscapes", "Landscaper", "loss-landscape-3d")
SAME_PLANE = ("Li et al.'s loop", "loss-landscape-3d")  # those that take our directions as they are
RAY, IN_PROCESS = "ours, two Ray actors", "ours, in process"
DEVICES = {RAY: [0, 1], IN_PROCESS: [0]}
SAME_VALUE = 1e-4


@dataclass(frozen=True)
class Case:
    """A network and the grids it is measured on.

    Attributes:
        network: its name.
        samples: how many a value is averaged over.
        epochs: of training.
        size: points along each side.
        part: of the smaller grid on which the speed of whatever is slow is taken.
        pictures: sides of the grids that adaptive sampling draws.
        rate_goal: points per second, compared with the best peer.
        wall_goal: wall time, compared with the best peer; None where there is none.
    """

    network: str
    samples: int
    epochs: int
    size: int
    part: int
    pictures: dict[int, float]
    rate_goal: float
    wall_goal: float | None


CASES = (
    Case("LeNet-5", 1024, 10, 40, 10, {65: 8.0, 129: 20.0}, 2.5, 1.5),
    Case("ResNet-20", 256, 12, 20, 4, {}, 2.0, None),
)
QUICK = (
    Case("LeNet-5", 64, 2, 12, 6, {17: 8.0, 33: 20.0}, 2.5, 1.5),
    Case("ResNet-20", 16, 2, 6, 4, {}, 2.0, None),
)


class Benchmark:
    """One case with all contenders.

    Args:
        case: what is measured.
        python: the peers' interpreter.
        folder: for files.
        repeats: how often each contender runs.
    """

    def __init__(self, case: Case, python: Path, folder: Path, repeats: int) -> None:
        self.case, self.python, self.folder, self.repeats = case, python, folder, repeats
        self.work = folder / f"{case.network}.pt"
        self.versions: dict[str, str] = {}
        self.plans: dict[str, object] = {}
        prepare_work(self.work, case.network, case.samples, case.epochs)

    def results(self) -> Results:
        """Runs everything and returns what came out."""
        case = self.case
        for devices in DEVICES.values():  # untimed: what PyTorch compiles is in its cache from now on
            run_ours(self.work, axis(case.part), self.folder / "warm.h5", devices=devices, compile=True)
        sizes = dict.fromkeys((*PEERS, IN_PROCESS), case.part) | {RAY: case.size}
        runs = self._in_turn(
            {name: partial(self._peer, name, sizes[name]) for name in PEERS}
            | {name: partial(self._ours, name, sizes[name]) for name in DEVICES}
        )
        medians = {name: Medians.of(found) for name, found in runs.items()}
        walls = {name: medians[name].wall_of(case.size**2) for name in sizes if sizes[name] < case.size}
        walls[RAY] = medians[RAY].wall
        best_rate = max(medians[name].rate for name in PEERS)
        best_wall = min(walls[name] for name in PEERS)
        rows = {
            name: Row(
                name, found, walls[name], sizes[name] < case.size, found.rate / best_rate, best_wall / walls[name]
            )
            for name, found in medians.items()
        }
        label = f"{case.network}, {case.samples:,} samples"
        grid = f"{label}, {case.size} x {case.size}"
        fastest = max(rows[name].rate_ratio or 0.0 for name in DEVICES)
        goals = [Goal(f"{grid}: points per second", case.rate_goal, fastest)]
        if case.wall_goal is not None:
            goals.append(Goal(f"{grid}: wall time", case.wall_goal, rows[RAY].wall_ratio))
        checks = self._check_surfaces({name: runs[name][0] for name in PEERS})
        results = Results(label, case.size, case.part, list(rows.values()), checks, goals, plans=self.plans)
        for side, goal in case.pictures.items():
            self._draw_picture(results, side, goal, {name: medians[name] for name in PEERS})
        return results

    def _draw_picture(self, results: Results, side: int, goal: float, peers: dict[str, Medians]) -> None:
        walls = {name: median.wall_of(side**2) for name, median in peers.items()}
        best = min(walls.values())
        found = self._in_turn({name: partial(self._ours, name, side, "adaptive") for name in DEVICES})
        runs = {name: Medians.of(timed) for name, timed in found.items()}
        error = self._largest_error(side)
        rows = [Row(name, peers[name], walls[name], True, None, best / walls[name]) for name in PEERS]
        rows += [Row(name, runs[name], runs[name].wall, False, None, best / runs[name].wall) for name in DEVICES]
        results.pictures[side] = (rows, error)
        results.goals.append(
            Goal(
                f"{results.label}, {side} x {side}: wall time to a picture with a largest error of {error:.2%}",
                goal,
                max(row.wall_ratio for row in rows if not row.extrapolated),
                holds=error <= 0.01,
            )
        )

    def _largest_error(self, side: int) -> float:
        """Returns the largest error of the adaptive pictures, as a share of the range of the losses.

        All points are measured, but only a part of a grid that is finer than the first one: those that it shares with
        the first one, which is measured already, and some between.
        """
        coordinates = np.array(axis(side))
        pictures = [self._loss(name, "adaptive", side) for name in DEVICES]
        chosen = {side: np.arange(side)}
        coarse = min(self.case.pictures)
        if side > coarse:
            chosen = {coarse: np.searchsorted(coordinates, axis(coarse)), side: np.arange(1, side, 8)}
        errors, values = [], []
        for grid, places in chosen.items():
            path = self.folder / f"truth_{grid}.h5"
            if not path.exists():
                run_ours(self.work, coordinates[places].tolist(), path, devices=DEVICES[RAY])
            truth = Landscape.load(path).loss
            values += [truth.min(), truth.max()]
            errors += [np.abs(picture[np.ix_(places, places)] - truth).max() for picture in pictures]
        return float(max(errors) / (max(values) - min(values)))

    def _check_surfaces(self, runs: dict[str, Run]) -> dict[str, str]:
        """Returns for each peer how it is known to measure the same kind of surface."""
        loss = self._loss(IN_PROCESS, "full", self.case.part)
        centre = float(Landscape.load(self._output(IN_PROCESS, "full", self.case.part)).origin.metrics["loss"])
        checks = {}
        for name, run in runs.items():
            self.versions |= run.printed["versions"]
            theirs = np.array(run.printed["loss"])
            if name in SAME_PLANE:
                difference = float(np.abs(theirs / loss - 1).max())
                checks[name] = f"same plane; largest relative difference from ours {difference:.1e}"
            else:
                difference = float(np.abs(theirs / centre - 1).min())
                checks[name] = f"directions or scale of its own; the loss at the centre differs by {difference:.1e}"
            if not difference < SAME_VALUE:
                raise RuntimeError(f"{name} measures another surface: {checks[name]}.")
        return checks

    def _in_turn(self, contenders: dict[str, Callable[[], Run]]) -> dict[str, list[Run]]:
        """Runs the contenders one after another, several times over, so that a busy minute meets all of them."""
        runs: dict[str, list[Run]] = {name: [] for name in contenders}
        for _ in range(self.repeats):
            for name, run in contenders.items():
                runs[name].append(run())
        return runs

    def _peer(self, name: str, size: int) -> Run:
        return run_peer(self.python, name, self.work, size)

    def _ours(self, name: str, size: int, sampling: str = "full") -> Run:
        output = self._output(name, sampling, size)
        run = run_ours(self.work, axis(size), output, devices=DEVICES[name], sampling=sampling)
        self.plans[name] = run.printed["plan"]
        return run

    def _loss(self, name: str, sampling: str, size: int) -> np.ndarray:
        return Landscape.load(self._output(name, sampling, size)).loss

    def _output(self, name: str, sampling: str, size: int) -> Path:
        return self.folder / f"{self.case.network}_{len(DEVICES[name])}_{sampling}_{size}.h5"


def main(python: Path, output: Path, *, repeats: int, quick: bool) -> None:
    machine, start = machine_lines(), time.perf_counter()
    found, versions = [], {}
    with tempfile.TemporaryDirectory(prefix="landscape-bench-") as folder:
        for case in QUICK if quick else CASES:
            benchmark = Benchmark(case, python, Path(folder), repeats)
            found.append(benchmark.results())
            versions |= benchmark.versions
            print("\n".join(found[-1].lines()), flush=True)
    seconds = time.perf_counter() - start
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    output.write_text(page(found, today, machine, version_lines(versions), repeats, seconds), "utf-8")
    print(f"\n{output} written; all took {seconds:.0f} s.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment")
    parser.add_argument("--output", type=Path, required=True, help="the page to write")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    arguments = parser.parse_args()
    sys.exit(main(arguments.peers, arguments.output, repeats=arguments.repeats, quick=arguments.quick))
