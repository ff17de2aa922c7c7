"""The same picture with fewer points: adaptive sampling beside a plain coarse grid and a cubic spline.

Run it by hand: ``python tests/benchmarks/pictures.py``; ``make bench`` puts the table on its page. No time is measured
here: what counts is points, the true error against every point of the grid, and whether somebody is told of it.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import prepare_work, read_work
from scipy.interpolate import RectBivariateSpline
from torch import nn

from landscape import Landscape, evaluate, random_plane
from landscape.record.checks import PointStatus

SIDE = 61  # its 60 steps are divided by 2, 3, 4, 5, 6 and 10, so plain grids are parts of the whole one
STEPS = (10, 6, 5, 4, 3, 2)


@dataclass(frozen=True)
class Surface:
    """What is drawn, as far as ``reach`` in filter-normalized directions.

    Errors are shares of the range of all losses or, where ``relative``, as logarithmic pictures need, of the loss.
    """

    name: str
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    reach: float
    relative: bool
    tolerance: float


def wrong_answers(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the share of wrong answers, which is constant between jumps."""
    return (outputs.argmax(1) != targets).double().mean()


SURFACES = (
    Surface("smooth: LeNet-5, cross entropy", nn.CrossEntropyLoss(), 1.0, False, 0.01),
    Surface("steep: the same, three times as wide, on a logarithmic scale", nn.CrossEntropyLoss(), 3.0, True, 0.05),
    Surface("rough: LeNet-5, share of wrong answers", wrong_answers, 1.0, False, 0.01),
)


@dataclass(frozen=True)
class Picture:
    """One surface, drawn from fewer points.

    Attributes:
        surface: which.
        points: how many adaptive sampling measured.
        error: its true largest error.
        estimated: the error that it claims; None where everything is measured.
        reached: whether it says that the tolerance is kept.
        plain: the true largest error of a cubic spline through a plain grid, by its side.
    """

    surface: Surface
    points: int
    error: float
    estimated: float | None
    reached: bool
    plain: dict[int, float]

    @property
    def fitting_side(self) -> int | None:
        """The smallest plain grid that keeps the tolerance, and so do all larger ones; None where none does."""
        fits = [side for side, error in self.plain.items() if error <= self.surface.tolerance]
        late = [side for side, error in self.plain.items() if error > self.surface.tolerance]
        return min((side for side in fits if side > max(late, default=0)), default=None)

    @property
    def plain_wins(self) -> bool:
        """Whether a plain grid would have needed fewer points, had somebody known which."""
        return self.fitting_side is not None and self.fitting_side**2 < self.points


def draw_pictures(work: Path, folder: Path, surfaces: Sequence[Surface] = SURFACES, side: int = SIDE) -> list[Picture]:
    return [_draw(work, folder, surface, side) for surface in surfaces]


def picture_lines(pictures: Sequence[Picture]) -> list[str]:
    sides = sorted({side for picture in pictures for side in picture.plain})
    header = " | ".join(f"plain {side} x {side}" for side in sides)
    lines = [
        f"| surface, tolerance | adaptive: points | true error | its own estimate | {header} | smallest plain grid |",
        "|" + "---|" * (len(sides) + 5),
    ]
    for picture in pictures:
        kind = "of the loss at each point" if picture.surface.relative else "of the range"
        claim = "all measured"
        if picture.estimated is not None:
            claim = f"{picture.estimated:.2%}" + ("" if picture.reached else ", not reached")
        fitting = picture.fitting_side
        cells = [
            f"{picture.surface.name}; {picture.surface.tolerance:.0%} {kind}",
            f"{picture.points:,}",
            f"{picture.error:.2%}",
            claim,
            *(f"{picture.plain[side]:.2%}" for side in sides),
            "none of these" if fitting is None else f"{fitting} x {fitting} = {fitting**2:,} points",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", _verdict(pictures)]


def _verdict(pictures: Sequence[Picture]) -> str:
    wins = [picture.surface.name.partition(":")[0] for picture in pictures if picture.plain_wins]
    fair = (
        "Nobody tells the owner of a plain grid which size suffices, nor what its error is: these sizes are known here "
        "only because every point was measured. That is what adaptive sampling adds: an estimate, checked at points "
        "that it had not seen, and every point of a surface too rough to interpolate."
    )
    if not wins:
        return f"On none of these surfaces a plain grid needs fewer points. {fair}"
    return f"The plain grid wins, with fewer points for the same tolerance, on: {', '.join(wins)}. {fair}"


def _draw(work: Path, folder: Path, surface: Surface, side: int) -> Picture:
    axis = np.linspace(-surface.reach, surface.reach, side)
    truth = _measure(work, folder / "whole.h5", surface, axis).loss
    drawn = _measure(
        work, folder / "adaptive.h5", surface, axis,
        sampling="adaptive", tolerance=surface.tolerance, relative_tolerance=surface.relative,
    )  # fmt: skip
    report = drawn.attributes["sampling"]
    plain = {}
    for step in STEPS:
        places = np.arange(0, side, step)
        if (side - 1) % step == 0 and len(places) > 3:
            plain[len(places)] = _error(surface, _spline(surface, axis, places, truth), truth)
    return Picture(
        surface,
        drawn.status_counts[PointStatus.MEASURED],
        _error(surface, drawn.loss, truth),
        report.get("estimated_error") if (drawn.status == PointStatus.INTERPOLATED).any() else None,
        bool(report.get("reached", True)),
        plain,
    )


def _spline(surface: Surface, axis: np.ndarray, places: np.ndarray, truth: np.ndarray) -> np.ndarray:
    known = truth[np.ix_(places, places)]
    known = np.log(known) if surface.relative else known
    values = np.asarray(RectBivariateSpline(axis[places], axis[places], known)(axis, axis))
    return np.exp(values) if surface.relative else values


def _error(surface: Surface, found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.max(np.abs(found - truth) / (truth if surface.relative else np.ptp(truth))))


def _measure(work: Path, output: Path, surface: Surface, axis: np.ndarray, **options: Any) -> Landscape:
    network, content = read_work(work)
    return evaluate(
        random_plane(network, seed=0),
        lambda: (surface.loss, read_work(work)[0], (content["inputs"], content["targets"]), {}),
        x=axis,
        y=axis,
        device_ids=[0],
        output=output,
        overwrite=True,
        progress=False,
        compile=False,
        **options,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="landscape-bench-") as name:
        prepare_work(Path(name) / "work.pt", "LeNet-5", 128, 10)
        print("\n".join(picture_lines(draw_pictures(Path(name) / "work.pt", Path(name)))))
