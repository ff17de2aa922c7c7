"""A spectrum shows a density whose integral is one, and eigenvalues where they are."""

import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import draw, legend_texts
from matplotlib.figure import Figure
from scipy.integrate import trapezoid

from landscape.figures import plot_spectrum
from landscape.figures.spectrum import curves_of
from landscape.record.checks import PointStatus

SLOW = pytest.mark.slow


def drawn(found, *arguments, **options):
    """Returns the axes, on a figure that is laid out no further."""
    return plot_spectrum(found, *arguments, **{"ax": Figure().add_subplot(), **options})


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
    ax = drawn(found, 7, width=0.5)
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


def test_eigenvalues_are_ticks_with_their_residuals():
    found = build_curvature(bottom=2)
    found.residuals[3] = 0.25
    ax = drawn(found, 3)
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
    ax = drawn(build_curvature(probes=0))
    assert ax.get_title().endswith("\nthe density was not measured")
    assert ax.get_yticks().size == 0
    assert len(legend_texts(ax)) == 1


def test_the_last_measured_checkpoint_is_taken():
    found = build_curvature()
    leave_out(found, [19, 20], PointStatus.PENDING)
    leave_out(found, [4], PointStatus.FAILED)
    assert "epoch 18" in drawn(found).get_title()
    for number, text in ((4, "4 is failed"), (20, "20 is pending"), (99, "but got 99: it is not in the file")):
        with pytest.raises(ValueError, match=text):
            drawn(found, number)
    leave_out(found, slice(None), PointStatus.PENDING)
    with pytest.raises(ValueError, match="No checkpoint's curvature is measured yet"):
        drawn(found)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"width": 0.0}, ValueError, "width must be a positive number, in units of the eigenvalues"),
        ({"width": "thin"}, TypeError, "width must be"),
        ({"number": "last"}, TypeError, "number must be"),
        ({"scale": "log"}, TypeError, "plot_spectrum has no argument 'scale'"),
    ],
)
def test_wrong_arguments_are_named(options, error, text):
    with pytest.raises(error, match=text):
        drawn(build_curvature(), **options)


SELDOM = ("no eigenvalues", "one probe", "weights unknown", "one step")


@pytest.mark.parametrize("strange", ["zero", "short probe", *(pytest.param(each, marks=SLOW) for each in SELDOM)])
def test_strange_values(strange):
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
    ax = drawn(found)
    draw(ax)
    assert any("probes" in text for text in legend_texts(ax)) == (strange != "one probe")
    assert any("single" in text for text in legend_texts(ax)) == (strange != "weights unknown")
