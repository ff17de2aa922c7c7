"""Pictures say who is on a plane: a path joins the checkpoints of one run only, and networks have their names."""

import numpy as np
import pytest
from figure_cases import build, draw, legend_texts, line, texts
from marked_cases import marked
from who_is_there import NETWORKS, with_ends, with_networks, with_runs

from landscape import figures
from landscape.drawing.texts import axis_label, title
from landscape.record.checks import PointStatus

FLAT = [figures.plot_contour, figures.plot_contour_lines, figures.plot_heatmap]
PLANES = [*FLAT, figures.plot_surface]


def lengths(ax):
    """Returns how many points each line that joins points has."""
    lines = [item for item in ax.get_lines() if item.get_linestyle() not in ("None", "none", " ", "")]
    points = [np.shape(item.get_data_3d() if ax.name == "3d" else item.get_xydata()) for item in lines]
    return [max(shape) for shape in points]


class TestNetworks:
    @pytest.mark.parametrize(
        ("other", "label", "heading"),
        [
            (NETWORKS[:2], r"from SGD to Adam \$x_1\$", r"SGD, Adam \$x_1\$"),
            (("A", "B"), "from the first network to the second", ""),
        ],
    )
    def test_barriers_of_several_pairs_have_the_names_of_none(self, other, label, heading):
        ways = {"one": with_ends(), "other": with_ends()}
        for way in ways.values():
            way.x[:] = np.linspace(0, 1, len(way.x))
        ways["other"].checkpoints.name = other
        ax = figures.plot_barriers(ways)
        assert (ax.get_xlabel(), ax.get_title()) == (label, heading)

    def test_of_barriers_the_missing_points_of_each_way_are_marked_and_counted(self):
        ways = {"whole": with_ends(), "begun": with_ends()}
        for way in ways.values():
            way.x[:] = np.linspace(0, 1, len(way.x))
        begun = ways["begun"]
        begun.metrics["loss"][3:6] = [np.nan, np.inf, np.nan]
        begun.status[[3, 5]] = [PointStatus.FAILED, PointStatus.PENDING]
        begun.attributes["measurement_plan"] = {"precision": "bfloat16"}
        ax = figures.plot_barriers(ways)
        assert {"pending (1)", "failed (1)", "not finite (1)"} <= set(legend_texts(ax))
        assert line(ax, "failed").get_xdata().tolist() == [begun.x[3]]
        assert ax.get_title().split("\n")[1:] == ["88 % measured (16 of 18 points)", "measured in bfloat16"]

    @pytest.mark.parametrize("plot", PLANES)
    def test_nothing_joins_three_networks_and_each_has_its_place_and_its_name(self, plot):
        ax = plot(with_networks())
        assert lengths(ax) == []
        said = legend_texts(ax)
        assert said == [r"Adam \$x_1\$", "average", "SGD"]
        assert not any(word in text for text in said for word in ("start", "end", "trajectory", "convergence"))
        marks = {item.get_marker() for item in ax.get_lines() if item.get_label() in said}
        assert len(marks) == 3
        draw(ax)
        if plot in FLAT:
            for name, place in zip(said, ((1, 0), (0, 1), (0, 0)), strict=True):
                np.testing.assert_allclose(line(ax, name).get_xydata(), [place], atol=1e-12)
            assert sorted(note.get_text() for note in ax.texts if hasattr(note, "xyann")) == sorted(said)

    def test_a_network_outside_the_picture_is_said_to_be_so(self):
        data = with_networks()
        data.checkpoints.x[1] = 99
        assert r"Adam \$x_1\$ (outside)" in legend_texts(figures.plot_contour(data))

    def test_titles_and_axes_have_their_names(self):
        data = with_networks()
        assert title(data) == r"LeNet, SGD, Adam \$x_1\$, average"
        assert [axis_label(data, axis) for axis in (0, 1)] == [r"from SGD to Adam \$x_1\$", "from SGD to average"]
        assert axis_label(data, 0, data.geometry) == r"distance from SGD to Adam \$x_1\$"
        assert axis_label(with_ends(), 0) == r"from SGD to Adam \$x_1\$"

    def test_the_name_of_an_end_that_is_highest_stays_inside_the_frame(self):
        data = with_ends()
        data.metrics["loss"][:] = np.linspace(3, 1, len(data.x))
        data.origin.x, data.origin.metrics["loss"] = float(data.x[0]), 3.0
        ax = figures.plot_profile(data)
        names = [note for note in ax.texts if hasattr(note, "xyann")]
        assert len(names) == 2
        assert max(note.get_window_extent().y1 for note in names) <= ax.get_window_extent().y1

    @pytest.mark.slow
    def test_the_ends_of_a_line_have_their_names(self):
        ax = figures.plot_profile(with_ends())
        assert {text.get_text() for text in ax.texts} == {"SGD", r"Adam \$x_1\$"}
        assert {"SGD", r"Adam \$x_1\$ (projected loss)"} <= set(legend_texts(ax))
        assert line(ax, "SGD").get_xydata().tolist() == [[0, 2]]
        assert not any("checkpoint" in text or "convergence" in text for text in texts(ax))


class TestRuns:
    @pytest.mark.parametrize("plot", FLAT)
    def test_each_run_has_a_path_of_its_own(self, plot):
        ax = plot(with_runs())
        assert lengths(ax) == [5, 8]
        assert legend_texts(ax) == ["SGD", "Adam", "start (epoch 0)", "end", "EMA", "final weights of SGD (epoch 20)"]
        assert len(line(ax, "start").get_xydata()) == len(line(ax, "end").get_xydata()) == 2
        paths = [line(ax, name) for name in ("SGD", "Adam")]
        assert paths[0].get_color() != paths[1].get_color()
        assert paths[0].get_linestyle() != paths[1].get_linestyle()

    def test_on_a_surface_too(self):
        ax = figures.plot_surface(with_runs())
        said = legend_texts(ax)
        assert said[:4] == ["SGD (projected loss)", "Adam (projected loss)", "start (epoch 0)", "EMA"]
        assert "final weights of SGD (epoch 20)" in said
        assert [len(line(ax, f"{name} (projected").get_data_3d()[0]) for name in ("SGD", "Adam")] == [5, 8]

    def test_a_single_checkpoint_is_no_path(self):
        ax = figures.plot_contour(build(points=1))
        assert legend_texts(ax) == ["final weights (epoch 3)", "final weights (epoch 3)"]

    def test_pictures_side_by_side_keep_who_is_who(self):
        axes = figures.plot_multiples([with_runs(), with_networks()])
        # A path and a star have the name SGD.
        named = ["SGD", "SGD", "Adam", r"Adam \$x_1\$", "average", "EMA", "start", "end", "final weights of SGD"]
        assert sorted(legend_texts(axes[0])) == sorted(named)


@pytest.mark.parametrize(
    ("points", "role", "number", "said"),
    [
        (0, "origin", None, "origin"),
        (12, "final weights", 14, "final weights (epoch 14)"),
        (12, "checkpoint", 14, "checkpoint (epoch 14)"),
    ],
)
@pytest.mark.parametrize("plot", marked(PLANES, pytest.mark.slow, after=1))
def test_the_star_says_what_is_known_of_the_origin(plot, points, role, number, said):
    data = build(points=points)
    data.origin.role, data.origin.number = role, number
    ax = plot(data)
    assert said in [text.replace("\n", " ") for text in legend_texts(ax)]
    assert not any("convergence" in text for text in legend_texts(ax))
