"""Sharpness over a training run says what was measured, with its errors, and hides nothing that was not."""

import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import draw, legend_texts
from matplotlib.figure import Figure

from landscape.figures import figure_pixels, plot_sharpness
from landscape.record.checks import PointStatus


def drawn(found, *arguments, **options):
    """Returns the axes, on a figure that is laid out no further."""
    return plot_sharpness(found, *arguments, **{"ax": Figure().add_subplot(), **options})


def curves(ax):
    """The curves by the first word of their labels."""
    return {str(curve.get_label()).split(",")[0]: curve for curve in ax.get_lines()}


def test_the_eigenvalues_and_the_trace_stand_at_their_checkpoints():
    found = build_curvature()
    ax = drawn(found)
    highest = np.column_stack([found.number, found.eigenvalues[:, 0]])
    np.testing.assert_array_equal(curves(ax)["λ₁"].get_xydata(), highest)
    np.testing.assert_array_equal(curves(ax)["trace"].get_ydata(), found.trace)
    assert curves(ax)["λ₁"].get_linewidth() > curves(ax)["λ₂ to λ₅ (the next largest)"].get_linewidth()
    entries = ["trace, the sum of all", "its 95 % interval", "λ₂ to λ₅ (the next largest)"]
    assert legend_texts(ax) == ["λ₁, the largest eigenvalue", *entries]
    assert ax.get_yscale() == "log"
    assert ax.get_title() == "sharpness of LeNet\nHessian of the loss, 1,024 samples"
    assert " ".join(ax.get_ylabel().split()) == "eigenvalue, in loss / distance² (log scale)"
    assert ax.get_xlabel() == "epoch"
    assert ax.get_ylim()[0] < np.min(found.eigenvalues)
    assert ax.get_ylim()[1] > found.trace_interval.max()


def test_it_says_which_matrix_and_how_many_samples():
    ax = plot_sharpness(build_curvature(matrix="ggn", num_samples=1), style="paper")
    assert " ".join(ax.get_title().split()) == "Gauss-Newton matrix (GGN) of the loss, 1 sample"
    named = drawn(build_curvature(num_samples=None), title="mine")
    assert named.get_title() == "mine\nHessian of the loss, all samples"


def test_missing_checkpoints_are_marked_and_nothing_joins_their_neighbours():
    found = build_curvature()
    leave_out(found, [4], PointStatus.FAILED)
    leave_out(found, [18, 19, 20], PointStatus.PENDING)
    ax = drawn(found)
    assert {"failed (1)", "pending (3)"} <= set(legend_texts(ax))
    assert curves(ax)["failed (1)"].get_xdata().tolist() == [4]
    assert curves(ax)["pending (3)"].get_xdata().tolist() == [18, 19, 20]
    assert np.flatnonzero(np.isnan(curves(ax)["λ₁"].get_ydata())).tolist() == [4, 18, 19, 20]
    assert ax.get_xlim()[0] < 0 < 20 < ax.get_xlim()[1]


def test_bars_are_the_residuals_and_hollow_marks_the_unconverged():
    found = build_curvature(top=1)
    found.residuals[9, 0], found.converged[9, 0] = 4.0, 0
    ax = drawn(found)
    bars = {bar[0][0]: bar[:, 1] for lines in ax.collections for bar in getattr(lines, "get_segments", list)()}
    value = found.eigenvalues[9, 0]
    np.testing.assert_allclose(bars[9], [value - 4, value + 4])
    (hollow,) = [mark for mark in ax.get_lines() if mark.get_xdata().tolist() == [9] if len(mark.get_xdata())]
    assert hollow.get_markerfacecolor() != hollow.get_color()
    assert "not converged: see its bar" in legend_texts(ax)
    assert "not converged: see its bar" not in legend_texts(drawn(build_curvature()))


def test_an_interval_below_zero_is_cut_off_and_said():
    found = build_curvature()
    found.trace_interval[3, 0] = -5.0
    ax = drawn(found)
    assert ax.get_yscale() == "log"
    assert "its 95 % interval (cut off below)" in legend_texts(ax)


def test_the_lower_end_makes_the_axis_linear_or_symmetric():
    ax = drawn(build_curvature(bottom=1))
    assert ax.get_yscale() in ("linear", "symlog")
    assert ax.get_ylim()[0] < -2
    assert "the lowest eigenvalue" in legend_texts(ax)
    logarithmic = drawn(build_curvature(bottom=1), scale="log")
    assert "21 values at or below 0, which a log scale cannot show" in logarithmic.get_title()


@pytest.mark.parametrize("given", [0.05, np.full(21, 0.05).tolist()])
def test_two_over_the_learning_rate(given):
    ax = drawn(build_curvature(), learning_rate=given)
    assert set(curves(ax)["2 / learning rate (gradient descent's limit)"].get_ydata()) == {40.0}


def test_a_learning_rate_that_was_recorded():
    limits = "2 / learning rate (gradient descent's limit)"
    rates = {str(number): 0.5 / number for number in range(1, 30)}
    limit = curves(drawn(build_curvature(learning_rate=rates)))[limits]
    assert np.isnan(limit.get_ydata()[0])
    np.testing.assert_allclose(limit.get_ydata()[[1, 20]], [4, 80])
    assert set(curves(drawn(build_curvature(learning_rate=0.1)))[limits].get_ydata()) == {20.0}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be a positive number, or 21 of them"),
        ({"learning_rate": [0.1, 0.2]}, ValueError, "learning_rate must be"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be"),
        ({"scale": "square"}, ValueError, "scale must be"),
        ({"levels": 3}, TypeError, "plot_sharpness has no argument 'levels'; it has theme, style, font, title, size"),
        ({"style": "poster"}, ValueError, "style must be"),
        ({"title": 3}, TypeError, "title must be"),
        ({"ax": 3}, TypeError, "ax must be matplotlib axes or None"),
    ],
)
def test_wrong_arguments_are_named(options, error, text):
    with pytest.raises(error, match=text):
        drawn(build_curvature(), **options)


STRANGE = ("nothing", "zero", "one", "equal", "no trace", "no eigenvalues", "huge", "one probe")


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_values(strange):
    found = build_curvature(1 if strange == "one" else 5, top=0 if strange == "no eigenvalues" else 5)
    if strange == "nothing":
        leave_out(found, slice(None), PointStatus.PENDING)
    if strange in ("zero", "equal"):
        level = 2 if strange == "equal" else 0
        found.eigenvalues[:], found.residuals[:], found.trace[:], found.trace_interval[:] = level, 0, level, level
    if strange == "no trace":
        found.trace[:], found.trace_interval[:] = np.nan, np.nan
    if strange == "huge":
        found.eigenvalues[2] *= 1e150
    if strange == "one probe":
        found.trace_interval[:] = np.nan
    ax = drawn(found)
    draw(ax)
    assert ("nothing measured yet" in ax.get_title()) == (strange == "nothing")
    assert any("trace" in text for text in legend_texts(ax)) == (strange not in ("nothing", "no trace"))
    assert any("λ₁" in text for text in legend_texts(ax)) == (strange != "no eigenvalues")


def test_it_draws_on_given_axes_and_leaves_the_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    ax = Figure().add_subplot()
    assert plot_sharpness(build_curvature(), ax, theme="dark") is ax
    assert ax.get_legend() is not None
    assert dict(matplotlib.rcParams) == before


def test_the_arrays_are_left_alone_and_the_picture_repeats():
    found, again = build_curvature(), build_curvature()
    first = figure_pixels(drawn(found))
    np.testing.assert_array_equal(first, figure_pixels(drawn(again)))
    np.testing.assert_array_equal(found.eigenvalues, again.eigenvalues)
