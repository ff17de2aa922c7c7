"""Pictures of curvature say what was measured, with its errors, and hide nothing that was not.

Sharpness over a training run has bars and marks; a spectrum has a density whose integral is one, and eigenvalues where
they are.
"""

import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import draw, legend_texts
from matplotlib.figure import Figure
from scipy.integrate import trapezoid

from landscape.figures import figure_pixels, plot_sharpness, plot_spectrum
from landscape.figures.spectrum import curves_of
from landscape.record.checks import PointStatus

SLOW = pytest.mark.slow
TRACE = ("trace, the sum of all", "its 95 % interval")
EIGENVALUES = ("λ₁, the largest eigenvalue", "λ₂ to λ₅ (the next largest)")
LOWEST, LIMIT = "the lowest eigenvalue", "2 / learning rate (gradient descent's limit)"
NO_LEVELS = "has no argument 'levels'; it has theme, style, font, title, size"


def sharpness(found, **options):
    """Returns the axes, on a figure that is laid out no further."""
    return plot_sharpness(found, **{"ax": Figure().add_subplot(), **options})


def spectrum(found, *number, **options):
    return plot_spectrum(found, *number, **{"ax": Figure().add_subplot(), **options})


def curves(ax):
    """The curves by the first word of their labels."""
    return {str(curve.get_label()).split(",")[0]: curve for curve in ax.get_lines()}


def test_the_eigenvalues_and_the_trace_stand_at_their_checkpoints():
    found, ax = build_curvature(), Figure().add_subplot()
    assert sharpness(found, ax=ax) is ax
    highest = np.column_stack([found.number, found.eigenvalues[:, 0]])
    np.testing.assert_array_equal(curves(ax)["λ₁"].get_xydata(), highest)
    np.testing.assert_array_equal(curves(ax)["trace"].get_ydata(), found.trace)
    assert curves(ax)["λ₁"].get_linewidth() > curves(ax)["λ₂ to λ₅ (the next largest)"].get_linewidth()
    assert legend_texts(ax) == [*TRACE, *EIGENVALUES]
    assert ax.get_yscale() == "log"
    assert ax.get_title() == "sharpness of LeNet\nHessian of the loss, 1,024 samples"
    assert " ".join(ax.get_ylabel().split()) == "eigenvalue, in loss / distance² (log scale)"
    assert ax.get_xlabel() == "epoch"
    assert ax.get_ylim()[0] < np.min(found.eigenvalues)
    assert ax.get_ylim()[1] > found.trace_interval.max()


def test_the_legend_lists_from_top_to_bottom():
    found = build_curvature(bottom=1)
    found.converged[3, 0] = 0
    expected = [*TRACE, *EIGENVALUES, LOWEST, "not converged: see its bar"]
    assert legend_texts(sharpness(found)) == expected
    for place, limit in ((0, 2000), (3, np.median(found.eigenvalues[:, 1])), (4, 0.002)):
        assert legend_texts(sharpness(found, learning_rate=2 / limit)) == [*expected[:place], LIMIT, *expected[place:]]
    for values in (found.trace, found.trace_low, found.trace_high):
        values -= 1000
    below = [*EIGENVALUES, LOWEST, *TRACE, expected[-1]]
    assert legend_texts(sharpness(found)) == below


def test_it_says_which_matrix_and_how_many_samples():
    ax = plot_sharpness(build_curvature(matrix="ggn", num_samples=1), style="paper")
    assert " ".join(ax.get_title().split()) == "Gauss-Newton matrix (GGN) of the loss, 1 sample"
    named = sharpness(build_curvature(num_samples=None), title="mine")
    assert named.get_title() == "mine\nHessian of the loss, all samples"


def test_missing_checkpoints_are_marked_and_nothing_joins_their_neighbours():
    found = build_curvature()
    leave_out(found, [4], PointStatus.FAILED)
    leave_out(found, [18, 19, 20], PointStatus.PENDING)
    ax = sharpness(found)
    assert {"failed (1)", "pending (3)"} <= set(legend_texts(ax))
    assert curves(ax)["failed (1)"].get_xdata().tolist() == [4]
    assert curves(ax)["pending (3)"].get_xdata().tolist() == [18, 19, 20]
    assert np.flatnonzero(np.isnan(curves(ax)["λ₁"].get_ydata())).tolist() == [4, 18, 19, 20]
    assert ax.get_xlim()[0] < 0 < 20 < ax.get_xlim()[1]


def test_bars_are_the_residuals_and_hollow_marks_the_unconverged():
    found = build_curvature(top=1)
    found.residuals[9, 0], found.converged[9, 0] = 4.0, 0
    ax = sharpness(found)
    bars = {bar[0][0]: bar[:, 1] for lines in ax.collections for bar in getattr(lines, "get_segments", list)()}
    value = found.eigenvalues[9, 0]
    np.testing.assert_allclose(bars[9], [value - 4, value + 4])
    (hollow,) = [mark for mark in ax.get_lines() if mark.get_xdata().tolist() == [9] if len(mark.get_xdata())]
    assert hollow.get_markerfacecolor() != hollow.get_color()
    assert "not converged: see its bar" in legend_texts(ax)
    assert "not converged: see its bar" not in legend_texts(sharpness(build_curvature()))


def test_an_interval_below_zero_is_cut_off_and_said():
    found = build_curvature()
    found.trace_low[3] = -5.0
    ax = sharpness(found)
    assert ax.get_yscale() == "log"
    assert "its 95 % interval (cut off below)" in legend_texts(ax)


def test_the_lower_end_makes_the_axis_linear_or_symmetric():
    ax = sharpness(build_curvature(bottom=1))
    assert ax.get_yscale() in ("linear", "symlog")
    assert ax.get_ylim()[0] < -2
    assert "the lowest eigenvalue" in legend_texts(ax)
    logarithmic = sharpness(build_curvature(bottom=1), scale="log")
    assert "21 values at or below 0, which a log scale cannot show" in logarithmic.get_title()


@pytest.mark.parametrize("given", [0.05, np.full(21, 0.05).tolist()])
def test_two_over_the_learning_rate(given):
    ax = sharpness(build_curvature(), learning_rate=given)
    assert set(curves(ax)[LIMIT].get_ydata()) == {40.0}


def test_a_learning_rate_that_was_recorded():
    rates = {str(number): 0.5 / number for number in range(1, 30)}
    limit = curves(sharpness(build_curvature(learning_rate=rates)))[LIMIT]
    assert np.isnan(limit.get_ydata()[0])
    np.testing.assert_allclose(limit.get_ydata()[[1, 20]], [4, 80])
    assert set(curves(sharpness(build_curvature(learning_rate=0.1)))[LIMIT].get_ydata()) == {20.0}


STRANGE = ("nothing", "zero", "one", "equal", "no trace", "no eigenvalues", "huge", "one probe")


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_values_of_sharpness(strange):
    found = build_curvature(1 if strange == "one" else 5, top=0 if strange == "no eigenvalues" else 5)
    if strange == "nothing":
        leave_out(found, slice(None), PointStatus.PENDING)
    if strange in ("zero", "equal"):
        level = 2 if strange == "equal" else 0
        found.eigenvalues[:], found.residuals[:] = level, 0
        found.trace[:] = found.trace_low[:] = found.trace_high[:] = level
    if strange == "no trace":
        found.trace[:] = found.trace_low[:] = found.trace_high[:] = np.nan
    if strange == "huge":
        found.eigenvalues[2] *= 1e150
    if strange == "one probe":
        found.trace_low[:] = found.trace_high[:] = np.nan
    ax = sharpness(found)
    draw(ax)
    assert ("nothing measured yet" in ax.get_title()) == (strange == "nothing")
    assert any("trace" in text for text in legend_texts(ax)) == (strange not in ("nothing", "no trace"))
    assert any("λ₁" in text for text in legend_texts(ax)) == (strange != "no eigenvalues")


def test_the_arrays_are_left_alone_and_the_picture_repeats():
    found, again = build_curvature(), build_curvature()
    first = figure_pixels(sharpness(found))
    np.testing.assert_array_equal(first, figure_pixels(sharpness(again)))
    np.testing.assert_array_equal(found.eigenvalues, again.eigenvalues)


def test_the_density_is_that_of_all_eigenvalues():
    # Of 200 known eigenvalues, each a node with its share.
    eigenvalues = np.sort(np.random.default_rng(0).normal(0, 2, 200))
    places = np.linspace(-12, 12, 4001)
    nodes, weights = np.append(eigenvalues, np.nan)[None], np.append(np.full(200, 1 / 200), np.nan)[None]
    (density,) = curves_of(nodes, weights, places, 0.3)
    assert trapezoid(density, places) == pytest.approx(1, abs=1e-6)
    share = trapezoid(density[places > 1], places[places > 1])
    assert share == pytest.approx((eigenvalues > 1).mean(), abs=0.03)
    assert trapezoid(density * places, places) == pytest.approx(eigenvalues.mean(), abs=1e-3)


def test_the_curve_is_the_mean_of_the_probes():
    found = build_curvature()
    ax = spectrum(found, 7, width=0.5)
    curve = ax.get_lines()[0]
    places, heights = np.asarray(curve.get_xydata()).T
    expected = curves_of(found.density_nodes[7], found.density_weights[7], places, 0.5).mean(axis=0)
    shown = expected > ax.get_ylim()[0]
    assert shown.sum() > 100
    np.testing.assert_allclose(heights[shown], expected[shown])
    assert ax.get_yscale() == "log"
    assert ax.get_title() == "spectrum of LeNet, epoch 7\nHessian of the loss, 1,024 samples"
    said = [" ".join(text.split()) for text in legend_texts(ax)]
    assert said[:3] == [
        "density, smoothed with a Gaussian (width 0.5)", "range of its 4 probes",
        "height of a single eigenvalue (of 1,210)",
    ]  # fmt: skip
    level = next(line for line in ax.get_lines() if "single" in str(line.get_label()))
    assert level.get_ydata()[0] == pytest.approx(1 / (1210 * 0.5 * np.sqrt(2 * np.pi)))


def test_a_narrow_width_hides_no_eigenvalue():
    found = build_curvature()
    nodes, weights = found.density_nodes[7], found.density_weights[7]
    highest = curves_of(nodes, weights, np.sort(nodes.ravel()), 1e-4).mean(axis=0).max()
    ax = spectrum(found, 7, width=1e-4)
    assert ax.get_lines()[0].get_ydata().max() == pytest.approx(highest, rel=1e-3)


def test_eigenvalues_are_ticks_with_their_residuals():
    found = build_curvature(bottom=2)
    found.residuals[3] = 0.25
    ax = spectrum(found, 3)
    lines = [segment for lines in ax.collections[-4:] for segment in lines.get_segments()]
    upright = sorted(start[0] for start, end in lines if start[0] == end[0])
    np.testing.assert_allclose(upright, sorted(found.eigenvalues[3]))
    np.testing.assert_allclose([end[0] - start[0] for start, end in lines if start[1] == end[1]], 0.5)
    said = [" ".join(text.split()) for text in legend_texts(ax)]
    assert said[-2:] == [
        f"the 5 largest eigenvalues (λ₁ = {found.eigenvalues[3, 0]:.3g} ± 0.2)",
        f"the 2 lowest eigenvalues (λₘᵢₙ = {found.eigenvalues[3, 5]:.3g} ± 0.2)",
    ]
    assert ax.get_xlim()[0] < found.eigenvalues[3, 5] < found.eigenvalues[3, 0] < ax.get_xlim()[1]


def test_without_a_density_the_eigenvalues_stand_alone_and_that_is_said():
    ax = spectrum(build_curvature(probes=0))
    assert ax.get_title().endswith("\nthe density was not measured")
    assert ax.get_yticks().size == 0
    assert len(legend_texts(ax)) == 1


def test_the_last_measured_checkpoint_is_taken():
    found = build_curvature()
    leave_out(found, [19, 20], PointStatus.PENDING)
    leave_out(found, [4], PointStatus.FAILED)
    assert "epoch 18" in spectrum(found).get_title()
    for number, text in ((4, "4 is failed"), (20, "20 is pending"), (99, "but got 99: it is not in the file")):
        with pytest.raises(ValueError, match=text):
            spectrum(found, number)
    leave_out(found, slice(None), PointStatus.PENDING)
    with pytest.raises(ValueError, match="No checkpoint's curvature is measured yet"):
        spectrum(found)


SELDOM = ("no eigenvalues", "one probe", "weights unknown", "one step")


@pytest.mark.parametrize("strange", ["zero", "short probe", *(pytest.param(each, marks=SLOW) for each in SELDOM)])
def test_strange_values_of_a_spectrum(strange):
    found = build_curvature(3, probes=1 if strange == "one probe" else 2)
    if strange == "no eigenvalues":
        found = build_curvature(3, top=0)
    if strange == "zero":
        found.eigenvalues[:], found.density_nodes[:] = 0, 0
    if strange == "weights unknown":
        found.attributes = {}
    if strange == "short probe":
        found.density_nodes[:, 1, 3:], found.density_weights[:, 1, 3:] = np.nan, 0
    if strange == "one step":
        found.density_nodes, found.density_weights = found.density_nodes[:, :, :1], np.ones((3, 2, 1))
    ax = spectrum(found)
    draw(ax)
    assert any("probes" in text for text in legend_texts(ax)) == (strange != "one probe")
    assert any("single" in text for text in legend_texts(ax)) == (strange != "weights unknown")


@pytest.mark.parametrize(
    ("plot", "options", "error", "text"),
    [
        (sharpness, {"learning_rate": 0.0}, ValueError, "learning_rate must be a positive number, or 21 of them"),
        (sharpness, {"learning_rate": [0.1, 0.2]}, ValueError, "learning_rate must be"),
        (sharpness, {"learning_rate": "fast"}, TypeError, "learning_rate must be"),
        (sharpness, {"scale": "square"}, ValueError, "scale must be"),
        (sharpness, {"levels": 3}, TypeError, f"plot_sharpness {NO_LEVELS}"),
        (sharpness, {"style": "poster"}, ValueError, "style must be"),
        (sharpness, {"title": 3}, TypeError, "title must be"),
        (sharpness, {"ax": 3}, TypeError, "ax must be matplotlib axes or None"),
        (spectrum, {"width": 0.0}, ValueError, "width must be a positive number, in units of the eigenvalues"),
        (spectrum, {"width": "thin"}, TypeError, "width must be"),
        (spectrum, {"number": "last"}, TypeError, "number must be"),
        (spectrum, {"scale": "log"}, TypeError, "plot_spectrum has no argument 'scale'"),
    ],
)
def test_wrong_arguments_are_named(plot, options, error, text):
    with pytest.raises(error, match=text):
        plot(build_curvature(), **options)
