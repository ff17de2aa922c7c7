"""Shows what a benchmark found, on the terminal and as ``docs/benchmarks.md``."""

import importlib.metadata
import os
import platform
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contenders import Medians

from workers.pools.devices import available_cores

OURS = ("torch", "numpy", "ray")
_IDLE_SHARE = 0.1
_LOOK_SECONDS = 5.0
_WIDTH = 125
_MANNER = (
    "Written by `make bench`; do not edit. Every contender does the same work in the same run, in turn, in "
    "processes of its own. Figures are medians, with the smallest and largest in brackets where there are "
    "several runs. Start-up is all wall time in which nothing is measured: imports, data, workers, tuning, "
    "compiling, and the end.",
    "**What the others get.** Each peer runs with the fastest of batches of 64, 128 and 256 samples, cut once, "
    "and with no loading processes. One process has as many threads as PyTorch chooses, and stands beside ours "
    "in process. Two processes have one thread and half of the grid each, as somebody with two terminals would "
    "do it, and stand beside our two workers; loss-landscapes and Landscaper measure whole squares only, so "
    "they cannot share one. Li et al.'s script no longer starts; its loop is code of ours. Ratios are to the "
    r"fastest peer in as many processes, which measured the whole grid as we did. \* The slower peers measured a "
    "smaller grid, and their wall time is start-up plus points over speed; no ratio is taken to those.",
    "**What we get.** The defaults. The first run finds no compiled code, as on a new machine; the second "
    "and third run are the same call again, with what those before them left. Nothing is compiled by hand: a network "
    "is compiled where a package of it is there, or where measuring is expected to take 30 s or more.",
)
_PICTURES = (
    'A picture needs fewer points than its grid has. Ours come from `sampling="adaptive"`; a user of any other '
    "tool can measure a plain coarse grid and draw a cubic spline through it (through the logarithm of the loss "
    "where the picture is logarithmic). Errors are the largest ones over all points of the whole grid, which "
    "was measured for this."
)


@dataclass(frozen=True)
class Row:
    """A contender's line.

    Attributes:
        name: its name.
        medians: what was timed.
        peer: the best peer's in as many processes, to which the ratios are; None for peers.
        plans: how it computed, run by run.
        extrapolated_wall: seconds for the whole grid, from a part of it; None where the whole one was timed.
    """

    name: str
    medians: Medians
    peer: Medians | None = None
    plans: Sequence[str] = field(default_factory=list)
    extrapolated_wall: float | None = None

    def line(self) -> str:
        cells = [self.name.ljust(34), f"{self.medians.rate:8.1f} points/s{_ratio(self.rate_ratio):>10}"]
        cells += [f"start-up {self.medians.start_up:6.1f} s", f"wall {self.wall:7.1f} s{self.star:1}"]
        return "  ".join([*cells, _ratio(self.wall_ratio)])

    def markdown(self) -> str:
        medians = self.medians
        low, high = medians.rate_range
        rate = f"{medians.rate:.1f}" + (f" ({low:.1f} - {high:.1f})" if medians.count > 1 else "")
        wall = f"{self.wall:.1f} s" + (r" \*" if self.star else "")
        if medians.count > 1:
            wall += f" ({medians.wall_range[0]:.1f} - {medians.wall_range[1]:.1f})"
        cells = [self.name, rate, _ratio(self.rate_ratio), f"{medians.start_up:.1f} s", wall, _ratio(self.wall_ratio)]
        return f"| {' | '.join(cells)} |"

    @property
    def wall(self) -> float:
        return self.medians.wall if self.extrapolated_wall is None else self.extrapolated_wall

    @property
    def star(self) -> str:
        """A mark where the wall time is extrapolated."""
        return "" if self.extrapolated_wall is None else "*"

    @property
    def rate_ratio(self) -> float | None:
        return None if self.peer is None else self.medians.rate / self.peer.rate

    @property
    def wall_ratio(self) -> float | None:
        """The peer's wall time over this one: above 1 it is faster."""
        return None if self.peer is None else self.peer.wall / self.wall


@dataclass(frozen=True)
class Goal:
    """What was aimed at: a ratio to the best peer, and the one that came out."""

    text: str
    wanted: float
    found: float

    @property
    def mark(self) -> str:
        return "reached" if self.found >= self.wanted else "**not reached**"


@dataclass(frozen=True)
class Results:
    """Everything about one network; on a part of the grid the peers' batch sizes were tried."""

    label: str
    part: int
    rows: list[Row]
    checks: Mapping[str, str]
    goals: list[Goal]

    def lines(self) -> list[str]:
        lines = [f"{self.label} (* extrapolated from {self.part} x {self.part})"]
        lines += [f"  {row.line()}" for row in self.rows]
        return lines + [
            f"  {goal.text}: {goal.found:.2f} x (goal {goal.wanted:g} x), {goal.mark}" for goal in self.goals
        ]


def page(found: Sequence[Results], pictures: Sequence[str], date: str, machine: list[str], seconds: float) -> str:
    lines = [
        "# Benchmarks",
        "",
        *[line for text in _MANNER for line in (*textwrap.wrap(text, _WIDTH, break_on_hyphens=False), "")],
        f"{date}. The whole run took {seconds:.0f} s.",
        "",
        *[f"- {line}" for line in machine],
        "",
        "## Goals",
        "",
        "| | goal | found | |",
        "|---|---|---|---|",
    ]
    goals = [goal for results in found for goal in results.goals]
    lines += [f"| {goal.text} | {goal.wanted:g} x | {goal.found:.2f} x | {goal.mark} |" for goal in goals]
    for results in found:
        lines += ["", f"## {results.label}", ""]
        lines += ["| | points per second | ratio | start-up | wall time | ratio |", "|---|---|---|---|---|---|"]
        lines += [row.markdown() for row in results.rows]
        lines += ["", rf"\* Timed once on {results.part} x {results.part} points. The peers' surfaces:", ""]
        lines += [f"- {name}: {text}." for name, text in results.checks.items()]
        lines += ["", "How each computed:", ""]
        for row in results.rows:
            lines += [f"- {row.name}: {plan}." for plan in dict.fromkeys(row.plans)]
    lines += ["", "## The same picture with fewer points", "", *textwrap.wrap(_PICTURES, _WIDTH), "", *pictures]
    return "\n".join(lines) + "\n"


def machine_line() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(available_cores())} cores, {memory:.0f} GiB memory"


def busy_line(when: str) -> str:
    """Returns how busy the machine is with other things, while nothing of ours runs."""
    first = _processor_times()
    time.sleep(_LOOK_SECONDS)
    busy, total = (later - earlier for earlier, later in zip(first, _processor_times(), strict=True))
    share = busy / max(total, 1)
    note = "idle" if share < _IDLE_SHARE else "**busy with other things, so all figures are rough**"
    return (
        f"{when} the run, over {_LOOK_SECONDS:.0f} s: {share:.0%} of the processor time in use (load average "
        f"{os.getloadavg()[0]:.1f}): {note}"
    )


def version_lines(peers: Mapping[str, str]) -> list[str]:
    ours = {name: importlib.metadata.version(name) for name in ("summary-landscape", *OURS)}
    return [
        f"ours: Python {platform.python_version()}, " + ", ".join(f"{name} {number}" for name, number in ours.items()),
        "peers: " + ", ".join(f"{name} {number}" for name, number in peers.items()),
    ]


def _processor_times() -> tuple[int, int]:
    """Returns the processors' busy and whole time since the machine's start, in ticks."""
    fields = [int(item) for item in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} x"
