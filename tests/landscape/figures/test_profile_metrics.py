"""Further metrics on a profile's right axis."""

import numpy as np
import pytest
from figure_cases import build_line, draw, legend_texts, line

from landscape.figures import plot_profile
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus


def build():
    data = build_line(np.geomspace(0.01, 40, 9))
    data.metrics["accuracy"] = np.linspace(0.99, 0.1, 9)
    data.metrics["accuracy_stderr"] = np.full(9, 0.02)
    data.metrics["recall"] = np.linspace(0.9, 0.2, 9)
    return data


def test_the_loss_is_on_the_left_and_the_others_on_the_right():
    data = build()
    ax = plot_profile(Landscape(data), others=["accuracy", "recall"])
    left, right = ax.figure.axes
    assert left is ax
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss (log scale)", "accuracy, recall")
    assert (left.get_yscale(), right.get_yscale()) == ("log", "linear")
    np.testing.assert_array_equal(line(right, "accuracy").get_ydata(), data.metrics["accuracy"])
    np.testing.assert_array_equal(line(right, "recall").get_ydata(), data.metrics["recall"])
    colors = {item.get_color() for item in (*left.get_lines()[:1], line(right, "accuracy"), line(right, "recall"))}
    assert len(colors) == 3
    strokes = {line(right, name).get_linestyle() for name in ("accuracy", "recall")} | {
        left.get_lines()[0].get_linestyle()
    }
    assert len(strokes) == 3
    assert {"measured points", "accuracy", "recall", "accuracy ± standard error"} <= set(legend_texts(ax))
    draw(ax)


def test_shares_on_the_right_axis_are_linear_unless_a_loss_is_among_them():
    data = build()
    data.metrics["accuracy"] = np.geomspace(0.01, 0.99, 9)
    data.metrics["mse"] = np.geomspace(0.01, 0.99, 9)
    for others, scale in ((["accuracy"], "linear"), (["accuracy", "mse"], "log")):
        assert plot_profile(Landscape(data), others=others).figure.axes[1].get_yscale() == scale


def test_the_band_is_one_standard_error_wide():
    data = build()
    data.metrics["loss_stderr"][:] = 0.001
    ax = plot_profile(Landscape(data), others="accuracy")
    for axes, metric, error in ((ax, "loss", 0.001), (ax.figure.axes[1], "accuracy", 0.02)):
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        for x, value in zip(data.x, data.metrics[metric], strict=True):
            heights = corners[np.isclose(corners[:, 0], x), 1]
            np.testing.assert_allclose([heights.min(), heights.max()], [value - error, value + error])


def test_axes_have_the_colours_of_their_curves():
    ax = plot_profile(Landscape(build()), others="accuracy")
    left, right = ax.figure.axes
    assert left.yaxis.label.get_color() == left.get_lines()[0].get_color()
    assert right.yaxis.label.get_color() == line(right, "accuracy").get_color()


def test_missing_values_leave_gaps():
    data = build()
    data.status[3] = PointStatus.FAILED
    right = plot_profile(Landscape(data), others="accuracy").figure.axes[1]
    assert np.isnan(line(right, "accuracy").get_ydata()[3])
    data.metrics["accuracy"][:] = np.nan
    draw(plot_profile(Landscape(data), others="accuracy"))


def test_wrong_others():
    with pytest.raises(KeyError, match="no metric 'speed'"):
        plot_profile(Landscape(build()), others="speed")
    with pytest.raises(TypeError, match="others must be the name of a metric, or a list of names"):
        plot_profile(Landscape(build()), others=3)
    with pytest.raises(TypeError, match="others must be the name"):
        plot_profile(Landscape(build()), others=["accuracy", 3])
    with pytest.raises(TypeError, match="plot_profile has no argument 'other'"):
        plot_profile(Landscape(build()), other="accuracy")
