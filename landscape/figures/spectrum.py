"""The spectrum at one checkpoint: how dense eigenvalues lie, and where the outermost ones are."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_float, check_int, wrong_value

from ..drawing.look import Axes, CurvatureLook
from ..drawing.sheet import CurvatureSheet, MeasuredCurvature, begin_picture, ends_of, symbol
from ..record.checks import PointStatus
from ..scales.levels import number_text

_POINTS = 1001
_ROUNDING = 1e-6
# Of the range of eigenvalues.
_SMOOTHING = 0.01
_BESIDE = 0.04
# So many decades below the highest value are drawn, where the number of weights does not say what one eigenvalue is.
_DECADES = 6


def plot_spectrum(
    curvature: MeasuredCurvature,
    number: int | None = None,
    ax: Axes | None = None,
    *,
    width: float | None = None,
    **look: Unpack[CurvatureLook],
) -> Axes:
    """Draws the density of one checkpoint's eigenvalues on a log scale, and its outermost eigenvalues as ticks.

    The density is made of weighted nodes (stochastic Lanczos quadrature), each smoothed with a Gaussian; the picture
    says of which width. A band shows how far the probes differ. Where no density was measured, the eigenvalues are
    drawn alone.

    Args:
        curvature: at n checkpoints.
        number: the checkpoint's; None takes the last that is measured.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        width: of the Gaussian, its standard deviation in units of the eigenvalues; None takes a hundredth of their
            range.
        **look: theme, style, title, size; see ``CurvatureLook``.

    Returns:
        The axes.

    Raises:
        TypeError: an argument is unknown or has the wrong type.
        ValueError: there is no such checkpoint, it has no curvature, or an argument has a wrong value.
    """
    row = find_row(curvature, number)
    if width is not None and not check_float("width", width) > 0:
        raise wrong_value("width", "a positive number, in units of the eigenvalues", width)
    values = curvature.eigenvalues[row]
    nodes, weights = curvature.density_nodes[row], curvature.density_weights[row]
    known = np.concatenate([values[np.isfinite(values)], nodes[np.isfinite(nodes)], [0.0]])
    span = float(np.ptp(known)) or 1.0
    chosen = _SMOOTHING * span if width is None else float(width)
    beside = _BESIDE * span + 3 * chosen
    places = np.linspace(known.min() - beside, known.max() + beside, _POINTS)
    if chosen < 3 * (places[1] - places[0]):  # else a narrow Gaussian may lie between two places
        around = nodes[np.isfinite(nodes)][:, None] + chosen * np.linspace(-4, 4, 17)
        places = np.unique(np.concatenate([places, around.ravel()]))
    curves = curves_of(nodes, weights, places, chosen)
    with begin_picture(CurvatureSheet, "plot_spectrum", ax, look, 3.3, curvature=curvature) as sheet:
        sheet.ax.set_xlim(places[0], places[-1])
        if len(curves):
            _draw_density(sheet, places, curves, chosen)
        _draw_ticks(sheet, row, alone=not len(curves))
        _write(sheet, row, *([] if len(curves) else ["the density was not measured"]))
        sheet.finish()
    return sheet.ax


def find_row(curvature: MeasuredCurvature, number: int | None) -> int:
    """Returns the row of a checkpoint whose curvature is measured; without a number that of the last one."""
    measured = np.flatnonzero(curvature.status == PointStatus.MEASURED)
    if number is None:
        if not len(measured):
            raise ValueError("No checkpoint's curvature is measured yet, so there is no spectrum to draw.")
        return int(measured[-1])
    check_int("number", number)
    rows = np.flatnonzero(curvature.number == number)
    if not len(rows) or rows[0] not in measured:
        kinds = [PointStatus(int(status)).name.lower() for status in curvature.status[rows]]
        but = f"{number} is {kinds[0]}" if kinds else f"got {number}: it is not in the file"
        listed = ", ".join(str(value) for value in curvature.number[measured]) or "none"
        raise ValueError(f"number must be that of a checkpoint whose curvature is measured ({listed}), but {but}.")
    return int(rows[0])


def curves_of(nodes: NDArray[Any], weights: NDArray[Any], places: NDArray[Any], width: float) -> NDArray[Any]:
    """Returns each probe's density, shape (probes, places), in shares of all eigenvalues per unit; skips NaN nodes."""
    known = np.isfinite(nodes)
    curves = [
        np.exp(-0.5 * ((places - node[at, None]) / width) ** 2).T @ weight[at] / (width * np.sqrt(2 * np.pi))
        for node, weight, at in zip(nodes, weights, known, strict=True)
        if at.any()
    ]
    return np.array(curves).reshape(len(curves), len(places))


def _draw_density(sheet: CurvatureSheet, places: NDArray[Any], curves: NDArray[Any], width: float) -> None:
    ax, look, highest = sheet.ax, sheet.appearance, float(curves.max())
    # What one eigenvalue alone makes: below it there is nothing to know.
    weights = sheet.curvature.attributes.get("weights")
    one = 1 / (weights * width * np.sqrt(2 * np.pi)) if weights else 0.0
    bottom = max(0.1 * one, highest * 1e-12) if one else highest * 10.0**-_DECADES
    ax.set_yscale("log")
    ax.set_ylim(bottom, 3 * highest)
    drawn, low, high = (np.maximum(part(axis=0), 1e-3 * bottom) for part in (curves.mean, curves.min, curves.max))
    ax.fill_between(places, bottom, drawn, color=look.series[0], alpha=0.3, linewidth=0, zorder=2)
    sheet.entries += ax.plot(
        places, drawn, color=look.series[0], linewidth=1.5 * look.factor, zorder=3,
        label=f"density, smoothed with a Gaussian (width {number_text(width)})",
    )  # fmt: skip
    if len(curves) > 1:
        label = f"range of its {len(curves)} probes"
        band = ax.fill_between(places, low, high, color=look.ink, alpha=0.25, linewidth=0, zorder=2.5, label=label)
        sheet.entries.append(band)
    if one:
        label = f"height of a single eigenvalue (of {weights:,})"
        level = ax.axhline(one, color=look.soft, linestyle=":", linewidth=look.factor, zorder=1, label=label)
        sheet.entries.append(level)


def _draw_ticks(sheet: CurvatureSheet, row: int, *, alone: bool) -> None:
    """Marks the eigenvalues at the bottom, with bars as long as their residuals; over the whole height if alone."""
    ax, look, found = sheet.ax, sheet.appearance, sheet.curvature
    (top, _), height = ends_of(found), 1.0 if alone else 0.09
    for which, name, first_of, color in (
        (slice(top), "largest", symbol(1), look.series[1]),
        (slice(top, None), "lowest", symbol("") + "ₘᵢₙ", look.series[3]),
    ):
        values, residuals = (array[row, which] for array in (found.eigenvalues, found.residuals))
        values, residuals = values[np.isfinite(values)], residuals[np.isfinite(values)]
        if not len(values):
            continue
        style: dict[str, Any] = {"color": color, "transform": ax.get_xaxis_transform(), "zorder": 4}
        marks = ax.vlines(values, 0, height, linewidth=1.6 * look.factor, **style)
        middle = np.full(len(values), height / 2)
        ax.hlines(middle, values - residuals, values + residuals, linewidth=look.factor, **style)
        many = f"the {len(values)} {name} eigenvalues" if len(values) > 1 else f"the {name} eigenvalue"
        # Products in float32 are not more exact than this, however small a residual was computed.
        bar = f" ± {residuals[0]:.1g}" if residuals[0] > _ROUNDING * abs(values[0]) else ""
        marks.set_label(f"{many} ({first_of} = {number_text(float(values[0]))}{bar})")
        sheet.entries.append(marks)
    ax.axvline(0, color=look.soft, linewidth=0.8 * look.factor, zorder=1)


def _write(sheet: CurvatureSheet, row: int, *notes: str) -> None:
    ax, found = sheet.ax, sheet.curvature
    ax.set_xlabel(f"eigenvalue of the {sheet.matrix}")
    if ax.get_yscale() == "log":
        ax.set_ylabel("share of all eigenvalues per unit (log scale)")
    else:
        ax.set_yticks([])
    ax.grid(axis="x", alpha=sheet.appearance.grid_alpha)
    name, place = sheet.network, f"{sheet.unit} {int(found.number[row])}"
    sheet.write_title(f"spectrum of {name}, {place}" if name else f"spectrum, {place}", *notes)
