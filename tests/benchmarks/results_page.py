"""Shows what a benchmark found, on the terminal and as ``docs/benchmarks.md``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contenders import Medians

from workers.pools.devices import available_cores

OURS = ("torch", "numpy", "ray")


@dataclass(frozen=True)
class Row:
    """A contender's line.

    Attributes:
        name: its name.
        medians: what was timed.
        wall: seconds of wall time for the whole grid.
        extrapolated: whether ``wall`` is start-up plus points over speed, from a part of the grid.
        rate_ratio: points per second over the best peer's; None where points are not comparable.
        wall_ratio: the best peer's wall time over this one.
    """

    name: str
    medians: Medians
    wall: float
    extrapolated: bool
    rate_ratio: float | None
    wall_ratio: float

    def line(self) -> str:
        """Returns the row for a terminal."""
        rate = "" if self.rate_ratio is None else f" {self.medians.rate:8.1f} points/s ({self.rate_ratio:5.2f} x)"
        star = "*" if self.extrapolated else " "
        return (
            f"  {self.name:22}{rate}  start-up {self.medians.start_up:6.1f} s  wall {self.wall:7.1f} s{star} "
            f"({self.wall_ratio:5.2f} x)"
        )


@dataclass(frozen=True)
class Goal:
    """What was aimed at.

    Attributes:
        text: what is compared.
        wanted: the ratio to the best peer.
        found: the ratio that came out.
        holds: whether what else was demanded is so.
    """

    text: str
    wanted: float
    found: float
    holds: bool = True

    @property
    def is_reached(self) -> bool:
        """Whether it is reached."""
        return self.holds and self.found >= self.wanted


@dataclass
class Results:
    """Everything about one network.

    Attributes:
        label: network and samples.
        size: points along each side of the grid.
        part: of the grid on which the peers were timed.
        rows: one per contender.
        checks: for each peer, whether it measures the same surface.
        goals: what was aimed at.
        pictures: side of the grid to rows and largest error.
        plans: how our contenders computed.
    """

    label: str
    size: int
    part: int
    rows: list[Row]
    checks: Mapping[str, str]
    goals: list[Goal]
    pictures: dict[int, tuple[list[Row], float]] = field(default_factory=dict)
    plans: Mapping[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Returns what a terminal shows: one line per contender."""
        lines = [f"{self.label}, {self.size} x {self.size} (* extrapolated from {self.part} x {self.part})"]
        lines += [row.line() for row in self.rows]
        for side, (rows, error) in self.pictures.items():
            lines.append(f"{self.label}, the picture {side} x {side}, ours adaptive, largest error {error:.2%}")
            lines += [row.line() for row in rows]
        lines += [f"  {_mark(goal)} {goal.text}: {goal.found:.2f} x (goal {goal.wanted:g} x)" for goal in self.goals]
        return lines


def page(
    found: Sequence[Results], date: str, machine: list[str], versions: list[str], repeats: int, seconds: float
) -> str:
    """Returns the page as Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. Every contender does the same work in the same run, in turn, each in a",
        f"process of its own; figures are medians of {repeats}, with the smallest and largest in brackets. Ratios are",
        "to the best peer. Start-up is all wall time of the process in which nothing is measured: imports, data,",
        "workers, compiling (its cache warm), and the end. \\* Extrapolated: timed on a smaller grid; the wall time",
        "for the whole one is start-up + points / speed. Each peer gets what suits it best: all samples in one batch",
        "where it takes any, as many CPU threads as PyTorch chooses, no loading processes. Li et al.'s script no",
        "longer starts; its loop is code of ours.",
        "",
        f"{date}. The whole run took {seconds:.0f} s.",
        "",
        *[f"- {line}" for line in machine + versions],
        "",
        "## Goals",
        "",
        "| | goal | found | |",
        "|---|---|---|---|",
    ]
    goals = [goal for results in found for goal in results.goals]
    lines += [f"| {goal.text} | {goal.wanted:g} x | {goal.found:.2f} x | {_mark(goal)} |" for goal in goals]
    for results in found:
        lines += ["", f"## {results.label}, {results.size} x {results.size}", ""]
        lines += ["| | points per second | ratio | start-up | wall time | ratio |", "|---|---|---|---|---|---|"]
        lines += [_speed_row(row) for row in results.rows]
        lines += ["", f"\\* Timed on {results.part} x {results.part} points. The peers' surfaces:", ""]
        lines += [f"- {name}: {text}." for name, text in results.checks.items()]
        lines += ["", "How ours computed, as its tuner chose:", ""]
        lines += [f"- {name}: {_plan_text(plan)}." for name, plan in results.plans.items()]
        for side, (rows, error) in results.pictures.items():
            lines += ["", f"## {results.label}, the picture {side} x {side}", ""]
            lines += [
                f'Ours with `sampling="adaptive"`; its largest error is {error:.2%} of the range of the losses.',
                "",
            ]
            lines += ["| | points measured | start-up | wall time | ratio |", "|---|---|---|---|---|"]
            lines += [_picture_row(row, side) for row in rows]
            if side > min(results.pictures):
                lines += ["", "The error was taken at the points of the smaller picture and at some between them."]
    return "\n".join(lines) + "\n"


def machine_lines() -> list[str]:
    """Returns what the machine is, and how busy."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    note = "" if load < 1 else ": busy with other things, so figures are rough"
    return [f"{model}, {len(available_cores())} cores, {memory:.0f} GiB memory; load before the run {load:.1f}{note}"]


def version_lines(peers: Mapping[str, str]) -> list[str]:
    """Returns the versions of everything that was timed."""
    ours = {name: importlib.metadata.version(name) for name in ("summary-landscape", *OURS)}
    return [
        f"ours: Python {platform.python_version()}, " + ", ".join(f"{name} {number}" for name, number in ours.items()),
        "peers: " + ", ".join(f"{name} {number}" for name, number in peers.items()),
    ]


def _speed_row(row: Row) -> str:
    low, high = row.medians.rate_range
    rate = f"{row.medians.rate:.1f} ({low:.1f} - {high:.1f}) | {row.rate_ratio:.2f} x"
    return f"| {row.name} | {rate} | {row.medians.start_up:.1f} s | {_wall(row)} | {row.wall_ratio:.2f} x |"


def _picture_row(row: Row, side: int) -> str:
    points = side**2 if row.extrapolated else row.medians.points
    return f"| {row.name} | {points:,} | {row.medians.start_up:.1f} s | {_wall(row)} | {row.wall_ratio:.2f} x |"


def _wall(row: Row) -> str:
    if row.extrapolated:
        return f"{row.wall:.1f} s \\*"
    low, high = row.medians.wall_range
    return f"{row.wall:.1f} s ({low:.1f} - {high:.1f})"


def _plan_text(plan: object) -> str:
    assert isinstance(plan, Mapping)
    return ", ".join(f"{name} {value}" for name, value in plan.items())


def _mark(goal: Goal) -> str:
    return "reached" if goal.is_reached else "not reached"
