"""A profile shows a line where it was measured, and further metrics on its right axis."""

import numpy as np
import pytest
from figure_cases import build_line, draw, legend_texts, line

from landscape.figures import plot_profile
from landscape.grid.checkpoints import CheckpointsData
from landscape.record.checks import PointStatus


class TestProfile:
    def test_shows_the_values_where_they_were_measured(self):
        loss = [5, 2, 0.5, 0.02, 0.7, 1, 9]
        data = build_line(loss)
        data.metrics["loss_stderr"][:] = 0.01
        data.status[2] = PointStatus.INTERPOLATED
        ax = plot_profile(data)
        np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), np.column_stack([data.x, loss]))
        assert line(ax, "interpolated").get_xydata().tolist() == [[data.x[2], 0.5]]
        assert len(line(ax, "measured").get_xydata()) == 6
        assert ax.get_yscale() == "log"
        assert ax.get_ylabel() == "loss (log scale)"
        assert ax.get_xlabel() == "random direction (filter-normalized)"
        assert ax.get_title() == "step 20\n6 of 7 points measured so far, 1 interpolated"
        (band,) = ax.collections
        box = band.get_paths()[0].get_extents()
        np.testing.assert_allclose([box.ymin, box.ymax], [0.01, 9.01])
        assert "loss ± standard error" in legend_texts(ax)

    def test_what_is_missing_is_marked(self):
        data = build_line([1, 2, np.nan, np.nan, np.inf])
        data.status[2], data.status[3] = PointStatus.FAILED, PointStatus.PENDING
        ax = plot_profile(data)
        assert {"pending (1)", "failed (1)", "not finite (1)"} <= set(legend_texts(ax))
        assert line(ax, "failed").get_xdata()[0] == data.x[2]
        draw(ax)

    def test_checkpoints_and_origin(self):
        data = build_line([1, 2, 3])
        data.checkpoints = CheckpointsData.empty([4, 5], np.array([-1.0, 0.0]), None, np.zeros(2), np.zeros(2))
        data.checkpoints.projected["loss"][:] = [0.5, 8]
        data.origin.metrics["loss"] = 2.5
        ax = plot_profile(data)
        assert line(ax, "checkpoints").get_xydata().tolist() == [[-1, 0.5], [0, 8]]
        assert line(ax, "origin").get_xydata().tolist() == [[0, 2.5]]
        assert {text.get_text() for text in ax.texts} == {"4", "5"}
        low, high = ax.get_ylim()
        assert low < 0.5
        assert high > 8
        assert plot_profile(data, trajectory=False).texts[:] == []

    @pytest.mark.parametrize(
        "loss", [[1, 1, 1], [np.nan] * 3, [3], [np.inf, -np.inf], [1e-300, 1e300], [-5, 0, 1e6], [0, 0, 1e-9]]
    )
    def test_strange_values(self, loss):
        draw(plot_profile(build_line(loss)))


class TestErrorBand:
    def test_the_axis_holds_the_band_or_it_is_said_to_be_cut_off(self):
        data = build_line(0.05 + np.linspace(-1.2, 1, 21) ** 2)
        data.metrics["loss_stderr"][:] = 0.4 * data.loss
        for scale in ("auto", "linear"):
            ax = plot_profile(data, scale=scale)
            bottom, top = ax.get_ylim()
            assert bottom <= (0.6 * data.loss).min()
            assert top >= (1.4 * data.loss).max()
            assert not any("cut off" in text for text in legend_texts(ax))
        data.metrics["loss_stderr"][:] = 0.1
        assert any("cut off below" in text for text in legend_texts(plot_profile(data, scale="log")))
        data.metrics["loss_stderr"][3] = 1e5
        ax = plot_profile(data, scale="linear")
        assert any("cut off below and above" in text for text in legend_texts(ax))
        assert ax.get_ylim()[1] < 5


def test_the_axis_says_how_far_one_is():
    data = build_line(np.linspace(1, 2, 5))
    assert "distance" not in plot_profile(data).get_xlabel()
    data.directions.norms[:] = 12.345
    assert plot_profile(data).get_xlabel().endswith("\n1 is a distance of 12.3 in weight space")


def several_metrics():
    data = build_line(np.geomspace(0.01, 40, 9))
    data.metrics["accuracy"] = np.linspace(0.99, 0.1, 9)
    data.metrics["accuracy_stderr"] = np.full(9, 0.02)
    data.metrics["recall"] = np.linspace(0.9, 0.2, 9)
    return data


def test_the_loss_is_on_the_left_and_the_others_on_the_right():
    data = several_metrics()
    ax = plot_profile(data, others=["accuracy", "recall"])
    left, right = ax.figure.axes
    assert left is ax
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss (log scale)", "accuracy, recall")
    assert (left.get_yscale(), right.get_yscale()) == ("log", "linear")
    np.testing.assert_array_equal(line(right, "accuracy").get_ydata(), data.metrics["accuracy"])
    np.testing.assert_array_equal(line(right, "recall").get_ydata(), data.metrics["recall"])

    curves = [left.get_lines()[0], line(right, "accuracy"), line(right, "recall")]
    assert len({item.get_linestyle() for item in curves}) == 3
    assert len({item.get_color() for item in curves}) == 3
    assert {"measured points", "accuracy", "recall", "accuracy ± standard error"} <= set(legend_texts(ax))
    draw(ax)


def test_shares_on_the_right_axis_are_linear_unless_a_loss_is_among_them():
    data = several_metrics()
    data.metrics["accuracy"] = data.metrics["mse"] = np.geomspace(0.01, 0.99, 9)
    for others, scale in ((["accuracy"], "linear"), (["accuracy", "mse"], "log")):
        assert plot_profile(data, others=others).figure.axes[1].get_yscale() == scale


def test_the_band_is_one_standard_error_wide_and_axes_have_the_colours_of_their_curves():
    data = several_metrics()
    data.metrics["loss_stderr"][:] = 0.001
    ax = plot_profile(data, others="accuracy")
    curves = (ax, "loss", 0.001, ax.get_lines()[0]), (right := ax.figure.axes[1], "accuracy", 0.02, line(right, "acc"))
    for axes, metric, error, curve in curves:
        assert axes.yaxis.label.get_color() == curve.get_color()
        (band,) = axes.collections
        corners = band.get_paths()[0].vertices
        for x, value in zip(data.x, data.metrics[metric], strict=True):
            heights = corners[np.isclose(corners[:, 0], x), 1]
            np.testing.assert_allclose([heights.min(), heights.max()], [value - error, value + error])


def test_missing_values_leave_gaps():
    data = several_metrics()
    data.status[3] = PointStatus.FAILED
    right = plot_profile(data, others="accuracy").figure.axes[1]
    assert np.isnan(line(right, "accuracy").get_ydata()[3])
    data.metrics["accuracy"][:] = np.nan
    draw(plot_profile(data, others="accuracy"))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"others": "speed"}, KeyError, "no metric 'speed'"),
        ({"others": 3}, TypeError, "others must be the name of a metric, or a list of names"),
        ({"others": ["accuracy", 3]}, TypeError, "others must be the name"),
        ({"other": "accuracy"}, TypeError, "plot_profile has no argument 'other'"),
    ],
)
def test_wrong_others(options, error, text):
    with pytest.raises(error, match=text):
        plot_profile(several_metrics(), **options)
