"""Compares this project with other landscape tools: ``make bench``.

All contenders do the same work in the same run, in turn, each in processes of its own. The other tools live in an
environment of their own (``.venv-peers``). What a smart user of another tool would do is done for it: mini-batches of
the best size, and two processes of one thread with half of the grid each beside our two workers.
"""

import argparse
import datetime
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from contenders import Medians, Run, axis, busy_loops, run_ours, run_peer
from networks import prepare_work
from pictures import SIDE, SURFACES, draw_pictures, picture_lines
from results_page import Goal, Results, Row, busy_line, machine_line, page, version_lines

from landscape import Landscape

PEERS = ("Li et al.'s loop", "loss-landscapes", "Landscaper", "loss-landscape-3d")
SAME_PLANE = ("Li et al.'s loop", "loss-landscape-3d")  # those that take our directions, and half of a grid
BATCH_SIZES = (64, 128, 256)
DEVICES = {"two workers": [0, 1], "in process": [0]}
SAME_VALUE = 1e-4


@dataclass(frozen=True)
class Case:
    """A network and the grid it is measured on.

    Attributes:
        network: its name.
        samples: how many a value is averaged over.
        epochs: of training.
        size: points along each side.
        part: of the smaller grid on which the peers' batch sizes are tried.
        repeats: how often each contender measures the whole grid.
        doors: which of our ways are timed.
        rate_goal: points per second of two actors, compared with the best peer's two processes.
        wall_goals: wall time compared with the best peer's equal: "two workers, first run", ...
    """

    network: str
    samples: int
    epochs: int
    size: int
    part: int
    repeats: int
    doors: tuple[str, ...]
    rate_goal: float
    wall_goals: dict[str, float]


RUNS = ("first run", "second run", "third run")
_WALL_GOALS = {"two workers, first run": 2.0, "two workers, third run": 2.5, "in process, first run": 1.4}
CASES = (
    Case("LeNet-5", 1024, 10, 40, 10, 1, tuple(DEVICES), 1.8, _WALL_GOALS),
    Case("ResNet-20", 256, 12, 20, 4, 1, ("two workers",), 2.0, {}),
)
QUICK = (
    Case("LeNet-5", 64, 2, 12, 6, 2, tuple(DEVICES), 1.8, _WALL_GOALS),
    Case("ResNet-20", 16, 2, 6, 4, 1, ("two workers",), 2.0, {}),
)


class Benchmark:
    def __init__(self, case: Case, python: Path, folder: Path) -> None:
        self.case, self.python, self.folder = case, python, folder
        self.work = folder / f"{case.network}.pt"
        self.versions: dict[str, str] = {}
        prepare_work(self.work, case.network, case.samples, case.epochs)

    def results(self) -> Results:
        alone = {name: self._tried(name, 1) for name in PEERS}
        shared = {name: self._tried(name, 2) for name in SAME_PLANE}
        for _, run in alone.values():
            self.versions |= run.printed["versions"]
        fastest = {1: _fastest(alone), 2: _fastest(shared)}
        sizes = {1: alone[fastest[1]][0], 2: shared[fastest[2]][0]}
        runs = self._in_turn(fastest, sizes)
        names = {1: f"{fastest[1]}, one process", 2: f"{fastest[2]}, two processes"}
        rows = [
            self._tried_row(f"{name}, {'one process' if processes == 1 else 'two processes'}", *tried)
            for processes, found in ((1, alone), (2, shared))
            for name, tried in found.items()
            if name != fastest[processes]
        ]
        rows += [
            Row(names[processes], Medians.of(runs[names[processes]]), plans=[f"batches of {sizes[processes]}"])
            for processes in (1, 2)
        ]
        medians = {name: Medians.of(found) for name, found in runs.items()}
        for name in [name for name in runs if name not in names.values()]:
            peer = medians[names[2 if name.startswith("two") else 1]]
            rows.append(Row(f"ours, {name}", medians[name], peer, [run.printed["plan"] for run in runs[name]]))
        checks = self._check_surfaces({name: run for name, (_, run) in alone.items()}, runs[names[2]][0])
        case = self.case
        label = f"{case.network}, {case.samples:,} samples, {case.size} x {case.size}"
        return Results(label, case.part, rows, checks, self._goals(label, medians, names))

    def _goals(self, label: str, medians: dict[str, Medians], names: dict[int, str]) -> list[Goal]:
        goals = [
            Goal(
                f"{label}: points per second, two workers, {which}, against {names[2]}",
                self.case.rate_goal,
                medians[f"two workers, {which}"].rate / medians[names[2]].rate,
            )
            for which in RUNS
        ]
        for name, wanted in self.case.wall_goals.items():
            peer = names[2 if name.startswith("two") else 1]
            goals.append(
                Goal(f"{label}: wall time, {name}, against {peer}", wanted, medians[peer].wall / medians[name].wall)
            )
        return goals

    def _tried(self, name: str, processes: int) -> tuple[int, Run]:
        """Returns a peer's best batch size on the small grid, and its run."""
        sizes = dict.fromkeys(min(size, self.case.samples) for size in BATCH_SIZES)
        runs = {
            size: run_peer(self.python, name, self.work, self.case.part, size, processes=processes) for size in sizes
        }
        best = max(runs, key=lambda size: runs[size].rate)
        return best, runs[best]

    def _tried_row(self, name: str, batch_size: int, run: Run) -> Row:
        medians = Medians.of([run])
        wall = medians.wall_of(self.case.size**2)
        return Row(name, medians, plans=[f"batches of {batch_size}"], extrapolated_wall=wall)

    def _in_turn(self, fastest: dict[int, str], sizes: dict[int, int]) -> dict[str, list[Run]]:
        """Measures the whole grid with the contenders one after another, so that a busy minute meets all of them."""
        case = self.case
        runs: dict[str, list[Run]] = {}
        for repeat in range(case.repeats):
            for processes, name in fastest.items():
                label = f"{name}, {'one process' if processes == 1 else 'two processes'}"
                found = run_peer(self.python, name, self.work, case.size, sizes[processes], processes=processes)
                runs.setdefault(label, []).append(found)
            for door in case.doors:
                # PyTorch's compiler cannot work in a folder whose name has a blank.
                cache = self.folder / f"cache_{case.network}_{door}_{repeat}".replace(" ", "_")
                cache.mkdir()
                for which in RUNS:  # each finds what those before it left
                    found = run_ours(self.work, axis(case.size), self._output(door), devices=DEVICES[door], cache=cache)
                    runs.setdefault(f"{door}, {which}", []).append(found)
                shutil.rmtree(cache)
        return runs

    def _check_surfaces(self, runs: dict[str, Run], halves: Run) -> dict[str, str]:
        """Returns for each peer how it is known to measure the same kind of surface."""
        output = self.folder / f"{self.case.network}_part.h5"
        run_ours(self.work, axis(self.case.part), output, devices=[0])
        part = Landscape.load(output)
        centre = float(part.origin.metrics["loss"])
        checks = {}
        for name, run in runs.items():
            assert run.loss is not None
            if name in SAME_PLANE:
                checks[name] = _checked(name, "same plane; largest relative difference from ours", run.loss, part.loss)
            else:
                difference = float(np.abs(run.loss / centre - 1).min())
                checks[name] = f"directions or scale of its own; the loss at the centre differs by {difference:.1e}"
                if not difference < SAME_VALUE:
                    raise RuntimeError(f"{name} measures another surface: {checks[name]}.")
        assert halves.loss is not None
        whole = Landscape.load(self._output(self.case.doors[0])).loss
        name = "two processes"
        checks[name] = _checked(name, "both halves, whole grid; largest relative difference", halves.loss, whole)
        return checks

    def _output(self, door: str) -> Path:
        return self.folder / f"{self.case.network}_{door}.h5"


def _fastest(tried: dict[str, tuple[int, Run]]) -> str:
    return max(tried, key=lambda name: tried[name][1].rate)


def _checked(name: str, text: str, found: np.ndarray, expected: np.ndarray) -> str:
    difference = float(np.abs(found / expected - 1).max())
    if not difference < SAME_VALUE:
        raise RuntimeError(f"{name} measures another surface: it differs by {difference:.1e}.")
    return f"{text} {difference:.1e}"


def main(
    python: Path, output: Path, *, quick: bool, only: str | None = None, repeats: int | None = None, loops: int = 0
) -> None:
    load, start = [busy_line("before")], time.perf_counter()
    found, versions = [], {}
    with tempfile.TemporaryDirectory(prefix="landscape-bench-") as name:
        folder = Path(name)
        for case in [case for case in (QUICK if quick else CASES) if only in (None, case.network)]:
            benchmark = Benchmark(replace(case, repeats=repeats or case.repeats), python, folder)
            with busy_loops(loops):
                found.append(benchmark.results())
            versions |= benchmark.versions
            print("\n".join(found[-1].lines()), flush=True)
        work = folder / "pictures.pt"
        prepare_work(work, "LeNet-5", *((64, 2) if quick else (128, 10)))
        pictures = draw_pictures(work, folder, SURFACES, 13 if quick else SIDE)
        print("\n".join(picture_lines(pictures)), flush=True)
    seconds = time.perf_counter() - start
    load.append(busy_line("after"))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = [machine_line(), *load, *version_lines(versions)]
    output.write_text(page(found, picture_lines(pictures), today, machine, seconds), "utf-8")
    print(f"\n{output} written; all took {seconds:.0f} s.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment")
    parser.add_argument("--output", type=Path, required=True, help="the page to write")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--only", help="the one network to measure, such as LeNet-5")
    parser.add_argument("--repeats", type=int, help="how often each contender measures the whole grid, in turn")
    parser.add_argument("--busy-loops", type=int, default=0, help="programs beside it that keep a core busy")
    given = parser.parse_args()
    sys.exit(
        main(
            given.peers,
            given.output,
            quick=given.quick,
            only=given.only,
            repeats=given.repeats,
            loops=given.busy_loops,
        )
    )
