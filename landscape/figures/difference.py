"""Two planes on the same grid, or two metrics of one plane, one minus the other: where each of them is lower."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64, UInt8
from collectors.validation import check_float, wrong_type

from ..drawing.look import Axes, Look
from ..drawing.missing import hatch_cells, hatched
from ..drawing.sheet import OWN_VALUES_WIDTH, Kind, begin, shared_scale
from ..drawing.texts import metric_text, missed_notes, plain, precision_notes, title
from ..grid.data import LandscapeData
from ..grid.differences import difference_errors
from ..record.checks import PointStatus
from ..scales.landscape_scale import known
from ..scales.scale import Scale
from .contour import draw_filled

_HATCH = {"facecolor": "none", "edgecolor": "#4d4d4d", "hatch": "---"}


def plot_difference(
    first: LandscapeData,
    second: LandscapeData | str,
    minus: str | None = None,
    ax: Axes | None = None,
    *,
    significance: float | None = 2.0,
    **look: Unpack[Look],
) -> Axes:
    """Draws one surface minus another in colours that change at zero, with the first one's path.

    ``plot_difference(first, second)`` subtracts the same metric of two planes on one grid;
    ``plot_difference(landscape, "loss@test", "loss")`` subtracts two metrics of one plane, which is the gap of
    generalisation.

    What may be chance is hatched: points whose difference is at most ``significance`` standard errors, plus the
    estimated errors of interpolated values. Where the same samples were measured and their losses kept
    (``keep_samples=True``), that is the standard error of each sample's own difference, which is often several times
    smaller. Each point is judged alone: of many points without any difference, one in twenty lies beyond 2 standard
    errors, and neighbours do so together, because they are measured on the same samples.

    Args:
        first: a plane.
        second: a plane on the same grid, or one of the first plane's metrics.
        minus: the metric that is subtracted, where ``second`` is a metric.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        significance: up to how many standard errors a difference is hatched; None or 0 hatches nothing. Nothing is
            hatched, either, where the standard errors are not known.
        **look: metric (of two planes), levels, scale ("auto", "linear" or "symlog"), colormap (of two hues),
            trajectory, clip (largest difference), theme, style, aspect, title, size; see ``Look``.

    Returns:
        The axes.

    Raises:
        KeyError: a landscape has no such metric.
        ValueError: a landscape is a line, the grids differ, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    found = subtract(first, second, minus, look)
    ours, theirs = found.landscapes
    if significance is not None:
        check_float("significance", significance, minimum=0)
    with begin(
        DIFFERENCE, ours, ax, {**look, "metric": found.metrics[0]}, values=found.values, diverging=True,
        label=found.label, status=found.status, estimates=[*precision_notes(ours, theirs), *missed_notes(ours, theirs)],
    ) as sheet:  # fmt: skip
        if sheet.heading is None and ours is not theirs:
            sheet.heading = "" if sheet.own and sheet.appearance.paper else _heading(ours, theirs)
        draw_filled(sheet)
        if significance and (chance := found.chance(significance)) is not None:
            hatch_cells(sheet, chance[0], _HATCH, 1.6)
            sheet.entries.append(hatched(textwrap.fill(chance[1], OWN_VALUES_WIDTH), _HATCH))
        sheet.finish()
    return sheet.ax


@dataclass(frozen=True, eq=False)
class Difference:
    """One surface minus another; two metrics of one landscape have it twice. ``label`` is the colour bar's text."""

    landscapes: tuple[LandscapeData, LandscapeData]
    metrics: tuple[str, str]
    values: Float64[np.ndarray, "ny nx"]
    status: UInt8[np.ndarray, "ny nx"]
    label: str

    def chance(self, significance: float) -> tuple[Bool[np.ndarray, "ny nx"], str] | None:
        """Returns what lies within so many standard errors, and that in words; None where these are not known."""
        errors = difference_errors(*self.landscapes, self.metrics)
        if errors is None:
            return None
        measured = known(self.values, self.status)
        where = errors.within(measured, significance)
        count, of = int(where.sum()), int(np.isfinite(measured).sum())
        unknown = int((np.isnan(errors.interpolation) & np.isfinite(measured)).sum())
        also = " and the interpolation error" if np.nan_to_num(errors.interpolation).any() else ""
        among = f", among them {unknown:,} whose interpolation error is not known" if unknown else ""
        return (
            where,
            f"within {significance:g} standard errors{also}, {errors.pairing}: {count:,} of {of:,} points{among}",
        )

    def scale(self, look: Look) -> Scale:
        """Returns the scale of the colours, which change at zero: the user's, or one that fits the differences."""
        differences = known(self.values, self.status)
        return shared_scale(DIFFERENCE, [], {**look, "metric": self.metrics[0]}, differences=differences)


def subtract(first: LandscapeData, second: LandscapeData | str, minus: str | None, look: Look) -> Difference:
    """Subtracts as ``plot_difference`` says, whose arguments these are."""
    if not isinstance(first, LandscapeData):
        raise wrong_type("first", "a Landscape", first)
    metrics: tuple[str, str]
    if isinstance(second, LandscapeData):
        if minus is not None:
            raise wrong_type("minus", "left out where two landscapes are given; metric= says which metric", minus)
        landscapes, metrics = (first, second), (look.get("metric", "loss"),) * 2
        label = f"difference of {metric_text(first, metrics[0])}"
    else:
        for name, value, also in (("second", second, "a Landscape, or "), ("minus", minus, "")):
            if not isinstance(value, str):
                raise wrong_type(name, f"{also}the name of a metric", value)
        if "metric" in look:
            raise ValueError(
                f"metric must be left out where two metrics are subtracted ({second!r} minus {minus!r}), but got "
                f"{look['metric']!r}."
            )
        landscapes, metrics = (first, first), (second, str(minus))
        label = " minus ".join(metric_text(first, name) for name in metrics)
    if first.y is None or landscapes[1].y is None:
        raise ValueError("plot_difference needs two planes, but got a line; plot_multiples draws lines side by side.")
    check_same_grid(*landscapes)
    values = difference(*(landscape[name] for landscape, name in zip(landscapes, metrics, strict=True)))
    return Difference(landscapes, metrics, values, joint_status(first.status, landscapes[1].status), label)


def check_same_grid(first: LandscapeData, second: LandscapeData) -> None:
    for name, ours, theirs in (("x", first.x, second.x), ("y", first.y, second.y)):
        if ours is None or theirs is None:
            same = ours is theirs
            texts = ["no points" if axis is None else f"{len(axis)} points" for axis in (ours, theirs)]
        else:
            near = 1e-9 * float(np.ptp(ours) or 1.0)
            same = len(ours) == len(theirs) and bool(np.allclose(ours, theirs, rtol=0, atol=near))
            texts = [f"{len(axis)} points from {axis[0]:.4g} to {axis[-1]:.4g}" for axis in (ours, theirs)]
        if not same:
            raise ValueError(
                f"the two landscapes must have the same grid, but along {name} the first has {texts[0]} and the "
                f"second {texts[1]}; measure both with the same size and range, or use plot_multiples."
            )


def difference(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Returns first minus second; infinities of the same sign have no difference and give NaN."""
    with np.errstate(invalid="ignore"):
        return np.asarray(first - second)


def joint_status(first: UInt8[np.ndarray, "*grid"], second: UInt8[np.ndarray, "*grid"]) -> UInt8[np.ndarray, "*grid"]:
    """Returns what is known about a difference: failed where either failed, else pending, else interpolated."""
    joint = np.full(first.shape, PointStatus.MEASURED, np.uint8)
    for status in (PointStatus.INTERPOLATED, PointStatus.PENDING, PointStatus.FAILED):
        joint[(first == status) | (second == status)] = status
    return joint


def _heading(first: LandscapeData, second: LandscapeData) -> str:
    """Returns what is subtracted from what: by the titles or, where these are the same, by the files' names."""
    names = [title(first), title(second)]
    if names[0] != names[1]:
        return f"{names[0]}\nminus {names[1]}"
    files = [landscape.path for landscape in (first, second)]
    for known_as in (lambda path: path.stem, lambda path: f"{path.parent.name}/{path.stem}"):
        short = [None if path is None else plain(known_as(path), 32) for path in files]
        if None not in short and short[0] != short[1]:
            return f"{names[0]}\n{short[0]} minus {short[1]}"
    return f"{names[0]}\nfirst minus second"


DIFFERENCE = Kind("plot_difference", draw_filled)
