"""Landscapes of several data sets: side by side on one scale, subtracted, along a line, and what the captions say."""

import numpy as np
import pytest
from data_sets import with_test_set
from figure_cases import build, build_line, colour_ends, draw, drawn_values, legend_texts, line
from matplotlib.contour import QuadContourSet

from landscape.drawing.path import TIME_BAR
from landscape.figures import plot_difference, plot_multiples, plot_profile
from landscape.landscape import Landscape

LONG = "recall of a very long name that somebody gave to a metric of theirs"


def both(**attributes):
    return with_test_set(build(**attributes))


def bars(axes):
    """Returns what the colour bars of values say; that of a path's time says nothing of data sets."""
    found = [ax for ax in axes[0].figure.axes[len(axes) :] if ax.get_label() != TIME_BAR]
    return [ax.get_ylabel() or ax.get_xlabel() for ax in found]


class TestSideBySide:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["contour", "heatmap"])
    def test_the_surfaces_of_two_data_sets_are_on_one_scale(self, kind):
        data = both()
        axes = Landscape(data).plot_multiples(["loss", "loss@test"], kind)
        everything = np.concatenate([data.metrics[name].ravel() for name in ("loss", "loss@test")])
        assert colour_ends(axes) == [(everything.min(), everything.max())] * 2
        assert [ax.get_title() for ax in axes] == ["loss on train", "loss on test"]
        assert axes[0].figure.get_suptitle() == "LeNet, epochs 3 to 14"
        assert bars(axes) == ["loss (log scale)"]
        assert not any("a scale each" in text for text in legend_texts(axes[0]))
        draw(axes[0])

    @pytest.mark.slow
    def test_other_quantities_have_a_scale_each_and_the_picture_says_so(self):
        data = both()
        axes = plot_multiples(data, metrics=["loss", "loss@test", "accuracy", "accuracy@test"])
        first, second, third, fourth = colour_ends(axes)
        assert first == second != third == fourth
        assert bars(axes) == ["loss (log scale)", "loss (log scale)", "accuracy", "accuracy"]
        assert "a scale each for loss and accuracy" in legend_texts(axes[0])

    @pytest.mark.slow
    def test_landscapes_are_rows_and_metrics_columns(self):
        other = both(network="ResNet")
        axes = plot_multiples([both(), other], metrics=["loss", "loss@test"])
        assert [ax.get_title() for ax in axes] == [
            "LeNet, epochs 3 to 14\nloss on train", "LeNet, epochs 3 to 14\nloss on test",
            "ResNet, epochs 3 to 14\nloss on train", "ResNet, epochs 3 to 14\nloss on test",
        ]  # fmt: skip
        assert [ax.get_subplotspec().rowspan.start for ax in axes] == [0, 0, 1, 1]
        assert axes[0].figure.get_suptitle() == ""

    def test_a_surface_that_nobody_named(self):
        axes = plot_multiples(with_test_set(build(), named=False), metrics=["loss", "loss@test"])
        assert [ax.get_title() for ax in axes] == ["loss", "loss on test"]

    @pytest.mark.slow
    @pytest.mark.parametrize("style", ["screen", "paper"])
    def test_paper_and_long_names_and_gaps(self, style):
        data = build()
        data.metrics[LONG] = data.metrics["accuracy"].copy()
        data.metrics["loss"][3:6, 4:9] = np.nan
        names = [LONG, f"{LONG}@a data set with a long name"]
        landscape = Landscape(with_test_set(data, dataset="a data set with a long name"))
        look = {"style": style, "theme": "light" if style == "paper" else "dark"}
        draw(plot_multiples(landscape, metrics=names, **look)[0])
        draw(landscape.plot_contour(metric=names[1], **look))
        draw(landscape.plot_difference(names[1], names[0], **look))


class TestDifference:
    def test_two_metrics_of_one_plane(self):
        data = both()
        data.metrics["loss@test"][...] = data.metrics["loss"] + data.x
        ax = plot_difference(data, "loss@test", "loss", scale="linear", levels=[-1.0, 0.5])
        assert ax.get_title() == "LeNet, epochs 3 to 14"
        assert "loss on test minus loss on train" in bars([ax])[0].replace("\n", " ")
        assert drawn_values(ax).norm.vmax == -drawn_values(ax).norm.vmin
        assert drawn_values(ax).norm.vmax <= np.abs(data.metrics["loss@test"] - data.metrics["loss"]).max()
        lines = next(item for item in ax.collections if isinstance(item, QuadContourSet) and not item.filled)
        for level, paths in zip(lines.levels, lines.get_paths(), strict=True):
            np.testing.assert_allclose(paths.vertices[:, 0], level, atol=1e-9)
        draw(ax)


class TestProfile:
    def test_both_data_sets_on_one_axis_and_an_accuracy_on_the_right(self):
        data = build_line(np.geomspace(0.01, 40, 9))
        data.metrics["loss_stderr"][...] = 0.1 * data.metrics["loss"]
        data.metrics["accuracy"] = np.linspace(0.99, 0.1, 9)
        ax = plot_profile(with_test_set(data), others=["loss@test", "accuracy", "accuracy@test"])
        left, right = ax.figure.axes
        assert left.get_ylabel() == "loss (log scale)"
        assert right.get_ylabel() == "accuracy"
        np.testing.assert_array_equal(line(left, "loss on test").get_ydata(), data.metrics["loss@test"])
        np.testing.assert_array_equal(line(right, "accuracy on test").get_ydata(), data.metrics["accuracy@test"])
        assert left.get_ylim()[1] > data.metrics["loss@test"].max()
        texts = {text.split(" (")[0] for text in legend_texts(ax)}
        curves = {f"{metric} on {name}" for metric in ("loss", "accuracy") for name in ("train", "test")}
        assert {*curves, "loss on train ± standard error", "loss on test ± standard error"} <= texts
        drawn = [left.get_lines()[0], line(left, "loss on test")]
        drawn += [line(right, f"accuracy on {name}") for name in ("train", "test")]
        assert len({item.get_color() for item in drawn}) == 4
        draw(ax)

    def test_only_the_test_set(self):
        ax = plot_profile(with_test_set(build_line([3, 1, 2])), metric="loss@test")
        assert ax.get_ylabel() == "loss on test"


class TestCaptions:
    @pytest.mark.slow
    def test_every_picture_says_which_data_set(self):
        data = both()
        landscape = Landscape(data)
        assert bars([landscape.plot_contour(metric="loss@test")]) == ["loss on test (log scale)"]
        assert bars([landscape.plot_heatmap()]) == ["loss on train (log scale)"]
        texts = legend_texts(landscape.plot_surface(metric="loss@test"))
        assert any("(projected loss on test)" in text for text in texts)

    def test_own_losses_are_those_of_the_data_set(self):
        data = build()
        path = data.checkpoints
        for values in (path.metrics, path.projected):
            values["loss"][:] = 1.0
            values["loss_stderr"] = np.full(len(path.number), 0.3)
        landscape = with_test_set(data)
        path.metrics["loss@test"][4] = 2.5
        said = [text.replace("\n", " ") for text in legend_texts(Landscape(landscape).plot_contour(metric="loss@test"))]
        assert any(text.startswith("own loss on test differs at 1 of 12 networks, most at epoch 7") for text in said)
        # Within two standard errors of that set nothing differs.
        path.metrics["loss_stderr@test"][:] = 5.0
        for metric in ("loss@test", "loss"):
            texts = legend_texts(Landscape(landscape).plot_contour(metric=metric))
            assert not any("own loss" in text for text in texts)

    def test_a_name_with_a_sign_is_no_data_set_without_a_loss(self):
        data = build()
        data.metrics["acc@5"] = data.metrics["accuracy"].copy()
        assert bars([Landscape(data).plot_heatmap(metric="acc@5")]) == ["acc@5"]

    def test_a_data_set_whose_name_sounds_like_a_loss(self):
        data = with_test_set(build(), dataset="normal")
        data.metrics["accuracy@normal"][...] = np.linspace(0.01, 0.9, data.status.size).reshape(data.shape)
        assert bars([Landscape(data).plot_heatmap(metric="accuracy@normal")]) == ["accuracy on normal"]
