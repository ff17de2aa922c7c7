"""Captions say what the file says, and nothing else."""

import re

import numpy as np
import pytest
from data_sets import with_test_set
from figure_cases import begun, build, build_adaptive, build_line
from long_paths import build_path

from landscape import Landscape, figures
from landscape.captions import barriers_caption, difference_caption, multiples_captions, profile_caption, write_caption
from landscape.figures import plot_difference
from landscape.grid.checkpoints import NO_RUN, CheckpointsData
from landscape.roles import NETWORK


def text_of(data, *arguments, **look):
    return write_caption(data, *arguments, **look).text


def test_of_a_path_and_its_principal_plane():
    data = build(num_samples=1024, samples="random", seed=7)
    text = text_of(data)
    start = "Loss of LeNet on the plane of the first two principal components of the path of the weights"
    assert text.startswith(f"{start} (shares of its variance: 63.2 % +")
    assert "21.4 %" in text
    assert "The path (12 checkpoints, epochs 3 to 14) is projected onto the plane" in text
    assert "30 × 20 points." in text
    assert "Each point is measured on 1,024 samples (drawn with seed 7)" in text


def test_of_several_runs_each_path_is_described():
    caption = write_caption(build_path("spiral", 20, runs=2))
    assert "of the first two principal components of the path of the weights (shares of its" in caption.text
    assert "The paths of 2 runs (run 1: 20 checkpoints, epochs 0 to 19; run 2: 20 checkpoints," in caption.text
    assert "are projected onto the plane, from which they are at most 0 away." in caption.text
    for run in ("run 1", "run 2"):
        assert f"The path of {run} goes from" in caption.alt
    assert "path" not in write_caption(build_path("spiral", 20, runs=2), trajectory=False).alt
    together = build_path("spiral", 20, runs=2, identity={"plane": {"runs": [20, 20]}})
    assert "of the first two principal components of the paths of 2 runs (shares of their" in text_of(together)


def test_of_random_directions():
    known = {"normalization": "filter", "directions_seed": 3, "perturb_one_dimensional": False}
    text = text_of(build(points=0, decomposition="random", **known))
    assert "along two random directions (normalized by filter (Li et al. 2018);" in text
    assert "; biases and normalization layers stay; seed 3)" in text


def test_the_samples_are_those_of_the_metrics_own_data_set_and_group():
    data = with_test_set(build(num_samples=256, samples="first"))
    data.metrics["loss[3]@test"] = data.metrics["loss@test"] + 1
    assert "Each point is measured on 256 samples (the first ones of the data set)" in text_of(data)
    assert "Each point is measured on 64 samples (the first" in text_of(data, metric="loss@test")
    assert "Each point is measured on 64 samples (the first" in text_of(data, metric="accuracy@test")
    grouped = text_of(data, metric="loss[3]@test")
    assert "Each point is measured on those of group 3 among 64 samples (the first" in grouped
    del data.attributes["datasets"]
    assert "samples" not in text_of(data, metric="loss@test")


def test_of_adaptive_sampling_the_tolerance_is_said():
    data = build_adaptive()
    assert "sampled adaptively within a tolerance of 2 %: 300 of 600 points measured, 300 interpolated" in text_of(data)
    data.attributes["num_samples"] = 64
    assert "Each measurement is on 64 samples." in text_of(data)


def test_no_tolerance_is_claimed_that_was_not_reached_or_not_asked_for():
    data = build_adaptive()
    data.attributes["sampling"]["reached"] = False
    for metric in ("loss", "accuracy"):
        assert "sampled adaptively, but not within a tolerance of 2 %" in text_of(data, metric=metric)
    # So a survey of all points ends that runs out of time.
    data.attributes["sampling"]["mode"] = "full"
    assert "30 × 20 points: 300 of 600 points measured, 300 interpolated" in text_of(data)
    assert not re.search("adaptively|within a tolerance", text_of(data))


def test_of_a_metric_that_adaptive_sampling_does_not_look_at_no_error_is_given():
    data = with_test_set(build_adaptive())
    assert "held-out points" in text_of(data)
    for text in (text_of(data, metric="loss@test"), text_of(data, metric="accuracy")):
        assert "sampled adaptively within a tolerance of 2 % of the loss on train" in text
        assert "interpolated linearly, error not estimated" in text
        assert not any(words in text for words in ("held-out", "confidence", "estimated error"))


def test_the_scale_is_said_where_it_is_not_plain():
    data = build(10.0 ** np.linspace(-3, 3, 600).reshape(20, 30))
    assert "Colours: log scale" in text_of(data)
    assert "Colours and heights: log scale" in text_of(data, "surface")
    assert "clipped above 5" in text_of(data, clip=5.0)
    assert "Colours" not in text_of(build(), metric="accuracy")


def test_the_scale_of_what_stands_on_a_surface_is_that_of_the_surface():
    columns = np.interp(np.linspace(0, 1, 40), [0, 0.1, 0.9, 1], [1, 1.4, 1.6, 2])
    data = build(np.tile(columns, (20, 1)), points=0)
    data.origin.metrics["loss"] = 1.5
    assert "levels at quantiles" in figures.plot_surface(data).get_zlabel()
    for kind in ("surface", "hero", "orbit"):
        assert "Colours and heights: levels at quantiles" in text_of(data, kind)
    assert "quantiles" not in text_of(data, "contour")


def test_what_the_file_does_not_say_is_not_said():
    data = build(points=0, decomposition="random")
    data.attributes.pop("network")
    assert not re.search("seed|samples|None", text_of(data))


def test_the_alternative_text_says_range_place_and_way():
    data = build()
    assert data.checkpoints is not None
    data.checkpoints.projected["loss"][:] = np.linspace(2, 0.5, 12)
    alt = write_caption(data, "surface").alt
    assert alt.startswith("A surface seen at an angle of loss of LeNet. The loss ranges from ")
    assert "It is lowest at x = " in alt
    assert alt.endswith("The projected path goes from 2 at epoch 3 to 0.5 at epoch 14.")


def test_the_way_is_that_of_the_heights_where_a_picture_has_some():
    data = build()
    data.checkpoints.metrics["loss"][:] = np.linspace(2, 0.5, 12)
    data.checkpoints.projected["loss"][:] = np.linspace(4, 3, 12)
    for kind in ("contour", "lines", "heatmap"):
        assert write_caption(data, kind).alt.endswith("The path goes from 2 at epoch 3 to 0.5 at epoch 14.")
    for kind in ("surface", "hero", "orbit"):
        assert write_caption(data, kind).alt.endswith("The projected path goes from 4 at epoch 3 to 3 at epoch 14.")


def test_of_several_metrics_the_path_is_described_where_it_is_drawn():
    data = build_line([3.0, 1.0, 2.0])
    data.checkpoints = CheckpointsData.empty([0, 1], np.array([-1.0, 1.0]), None, np.zeros(2), np.ones(2))
    data.checkpoints.projected["loss"][:], data.checkpoints.metrics["loss"][:] = [3.0, 2.0], [5.0, 2.0]
    assert "The projected path goes from 3" in profile_caption(data, ["loss", "loss_stderr"]).alt
    assert "own loss" in profile_caption(data, ["loss", "loss_stderr"]).text.lower()
    without = str(profile_caption(data, ["loss", "loss_stderr"], trajectory=False)).lower()
    assert not re.search("path|own loss", without)


def test_of_a_line_and_of_nothing_measured():
    line = Landscape(build_line([3.0, 1.0, 2.0]))
    assert "along one random direction (normalized by filter" in line.caption("profile").text
    empty = begun(build(), 0)
    assert "600 are not measured yet" in text_of(empty)
    assert "no finite value" in write_caption(empty).alt


def test_by_default_it_is_of_contours_or_of_a_lines_profile():
    line, plane = Landscape(build_line([3.0, 1.0, 2.0])), Landscape(build())
    assert line.caption() == line.caption("profile")
    assert line.caption().alt.startswith("A curve of loss")
    assert plane.caption() == plane.caption("contour")
    assert plane.caption().alt.startswith("Filled contours of loss")


@pytest.mark.parametrize(
    ("kind", "plot"),
    [
        ("contour", "plot_contour"), ("lines", "plot_contour_lines"), ("heatmap", "plot_heatmap"),
        ("surface", "plot_surface"), ("hero", "plot_hero"), ("animation", "walk_frames"), ("profile", "plot_profile"),
        ("barriers", "plot_barriers"),
    ],
)  # fmt: skip
def test_a_caption_is_refused_where_the_picture_is(kind, plot):
    wrong = Landscape(build() if kind in ("profile", "barriers") else build_line([3.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="line") as of_the_picture:
        list(getattr(figures, plot)({"way": wrong} if kind == "barriers" else wrong) or ())
    with pytest.raises(ValueError, match="line") as of_the_caption:
        wrong.caption(kind)
    assert str(of_the_caption.value) == str(of_the_picture.value)


@pytest.mark.parametrize("kind", ["difference", "uncertainty", "orbit"])
def test_no_caption_calls_a_line_a_plane(kind):
    with pytest.raises(ValueError, match="needs a plane, but the landscape is a line; use plot_profile"):
        Landscape(build_line([3.0, 1.0, 2.0])).caption(kind)


@pytest.mark.parametrize("kind", ["multiples", "persistence", "merge_tree"])
def test_what_shows_planes_and_lines_has_a_caption_for_both(kind):
    for data in (build(), build_line([3.0, 1.0, 2.0])):
        assert Landscape(data).caption(kind).text


def test_an_unknown_kind_or_metric_is_an_error():
    with pytest.raises(ValueError, match=r"^kind must be"):
        write_caption(build(), "painting")
    for caption, others in ((write_caption, ()), (difference_caption, (build(),))):
        with pytest.raises(TypeError, match=r"caption\w* has no argument 'clipp'; it has metric, levels"):
            caption(build(), *others, clipp=2.0)
    with pytest.raises(KeyError, match="no metric 'lose'"):
        write_caption(build(), metric="lose")


class TestFlat:
    def test_it_has_no_lowest_place(self):
        caption = write_caption(build(np.full((5, 5), 3.0), points=0))
        assert caption.alt.endswith("Flat: loss is 3 at all 25 finite points.")
        assert "lowest" not in caption.alt
        line = write_caption(build_line([np.nan, 3.0, 3.0]), "profile")
        assert line.alt == "A curve of loss. Flat: loss is 3 at all 2 finite points; 1 others have no value."
        # Several lowest points are counted.
        assert "It is lowest at 2 points alike." in write_caption(build_line([1.0, 2.0, 1.0]), "profile").alt

    def test_pictures_of_minima_say_that_there_is_none(self):
        for kind in ("persistence", "merge_tree"):
            assert "none: loss is flat" in write_caption(build(np.full((5, 5), 3.0)), kind).alt


def ways(**attributes):
    """A line and a curve between two networks, A and B, with barriers of 2 and 0.5."""
    found = []
    for kind, loss in (("points", [1.0, 3.0, 1.0]), ("path", [1.0, 1.5, 1.0])):
        data = build_line(loss, decomposition=kind, **attributes)
        data.x[:] = [0.0, 0.5, 1.0]
        places = np.array([0.0, 1.0])
        data.origin.role, data.origin.name = NETWORK, "A"
        who = {"run": [NO_RUN, NO_RUN], "runs": (), "name": ["A", "B"]}
        data.checkpoints = CheckpointsData.empty([0, 0], places, None, np.zeros(2), places, **who)
        found.append(data)
    line, curve = found
    curve.attributes["path"] = {"kind": "bezier", "bends": 1, "fitting": {"steps": 50, "seed": 4}}
    return line, curve


class TestCurve:
    def test_it_is_said_which_curve_it_is_and_between_whom(self):
        _, curve = ways()
        assert text_of(curve, "profile").startswith(
            "Loss on a Bezier curve from A to B with 1 bend, fitted in 50 steps (seed 4). 3 points."
        )
        curve.attributes["path"] = {"kind": "polygon", "bends": 2}
        assert text_of(curve, "profile").startswith("Loss on a polygon from A to B with 2 bends. 3 points.")
        del curve.attributes["path"]
        assert text_of(curve, "profile").startswith("Loss on a curve from A to B. 3 points.")

    def test_a_place_on_it_is_a_part_of_the_way(self):
        _, curve = ways()
        curve.metrics["loss"][:] = [1.0, 0.5, 2.0]
        assert "It is lowest at 0.5 of the way from A (0) to B (1)." in write_caption(curve, "profile").alt
        curve.metrics["loss"][:] = [1.0, 0.5, 0.25]
        assert "It is lowest at B." in write_caption(curve, "profile").alt
        assert "directions" not in write_caption(curve, "profile").alt

    def test_barriers_are_one_picture_with_their_heights(self):
        line, curve = ways()
        curve.metrics["loss"][:] = [1.0, 100.0, 1.0]
        caption = barriers_caption({"straight": line, "curved": curve})
        assert "straight: loss on the line through A and B." in caption.text
        assert "curved: loss on a Bezier curve from A to B with 1 bend" in caption.text
        assert "straight: barrier 2 at 0.5 of the way. curved: barrier 99 at 0.5 of the way." in caption.text
        assert "scale" not in caption.text  # it is linear, as the picture's
        assert "Vertical axis: log scale" in barriers_caption({"": line, "curved": curve}, scale="log").text
        assert caption.alt.startswith("2 curves of loss between two networks. straight: The loss ranges from 1 to 3.")
        assert write_caption(line, "barriers").alt.endswith("Barrier 2 at 0.5 of the way.")


class TestDifference:
    def test_of_two_metrics(self):
        data = with_test_set(build(points=0, num_samples=256, samples="first"))
        for name in ("loss", "loss@test"):
            data.metrics[f"loss_stderr{name.removeprefix('loss')}"] = np.full((20, 30), 0.1)
        gap = data.metrics["loss@test"] - data.metrics["loss"]
        caption = Landscape(data).caption_difference("loss@test", "loss")
        assert caption.text.startswith("Loss on test minus loss on train of LeNet on the plane of the first two")
        assert "loss on test: each point is measured on 64 samples" in caption.text
        assert "loss on train: each point is measured on 256 samples" in caption.text
        assert "Colours change at zero, below which loss on test is lower." in caption.text
        assert "log scale" not in caption.text
        near = int((np.abs(gap) <= 2 * np.hypot(0.1, 0.1)).sum())
        assert f"Hatched: within 2 standard errors, not paired: {near} of 600 points." in caption.text
        assert f"The difference ranges from {gap.min():.4g} to {gap.max():.4g}." in caption.alt
        below, above = int((gap < 0).sum()), int((gap > 0).sum())
        assert f"below zero, where loss on test is lower, at {below} points, and above zero at {above}." in caption.alt
        for nothing in (None, 0):
            assert "Hatched" not in str(Landscape(data).caption_difference("loss@test", "loss", significance=nothing))

    def test_of_two_landscapes(self):
        first, second = build(np.full((20, 30), 2.5)), build(np.full((20, 30), 3.0), network="ResNet")
        caption = difference_caption(first, second)
        assert caption.text.startswith("Difference of loss: the first minus the second. the first: loss of LeNet on")
        assert "the second: loss of ResNet on the plane" in caption.text
        assert "Flat: difference is -0.5 at all 600 finite points." in caption.alt

    @pytest.mark.parametrize("look", [{}, {"scale": "symlog"}, {"scale": "linear", "clip": 5.0}])
    def test_its_scale_is_that_of_the_picture(self, look):
        loss = 10.0 ** np.linspace(-3, 3, 600).reshape(20, 30)
        pair = build(loss), build(loss[::-1])
        (bar,) = plot_difference(*pair, **look).figure.axes[1:2]
        _, _, said = bar.get_ylabel().partition("(")
        text = difference_caption(*pair, **look).text
        assert (f"Colours: {said.rstrip(')')}." if said else "below which the first is lower.") in text
        assert ("Colours: " in text) == bool(said)

    def test_one_landscape_has_none(self):
        with pytest.raises(ValueError, match=r"^kind must be .*caption_difference"):
            write_caption(build(), "difference")


class TestSeveral:
    def test_multiples_say_the_scale_that_they_share(self):
        low, high = build(np.linspace(1, 2, 600).reshape(20, 30)), build(np.linspace(100, 200, 600).reshape(20, 30))
        one, other = multiples_captions([low, high], ["loss"], "heatmap")
        assert "Colours: log scale" not in text_of(low)
        for number, caption in enumerate((one, other), 1):
            assert "Colours: log scale. The 2 pictures of this quantity share one scale." in caption.text
            which = "first" if number == 1 else "second"
            assert caption.alt.startswith(f"Picture {number} of 2 (the {which}): A heat map")

    def test_curves_of_a_profile_are_one_picture(self):
        line = build_line([1.0, 2.0, 3.0])
        line.metrics |= {"accuracy": np.array([0.1, 0.2, 0.3]), "loss@test": np.array([100.0, 200.0, 300.0])}
        caption = profile_caption(line, ["loss", "loss@test", "accuracy"])
        assert caption.text.startswith("Loss, loss on test and accuracy along") or "accuracy around" in caption.text
        assert "Left axis: log scale." in caption.text
        assert "Right axis" not in caption.text
        assert "The loss on test ranges from 100 to 300." in caption.alt
        assert "The accuracy ranges from 0.1 to 0.3." in caption.alt

    def test_uncertainty_describes_the_errors(self):
        data = build(points=0)
        data.metrics["loss_stderr"] = np.linspace(0.01, 0.1, 600).reshape(20, 30)
        caption = write_caption(data, "uncertainty")
        assert caption.text.startswith("Standard error of loss over samples of LeNet")
        assert "The standard error of loss over samples ranges from 0.01 to 0.1." in caption.alt
        assert "It is highest at x = 2.5, y = 1.2" in caption.alt
        data.metrics |= {"loss@test": data.loss, "loss_stderr@test": data.metrics["loss_stderr"]}
        text = write_caption(data, "uncertainty", metric="loss@test").text
        assert text.startswith("Standard error of loss on test over samples of LeNet")
        with pytest.raises(ValueError, match=r"^no error of 'accuracy' is known"):
            write_caption(data, "uncertainty", metric="accuracy")

    def test_pictures_of_minima_say_how_many_and_which_count(self):
        caption = write_caption(build_line([0.5, 5, 0.59, 1, 2, 9, 9.5]), "persistence", persistence=0.1)
        assert "A minimum counts where its barrier is higher than 0.1." in caption.text
        assert "Minima: 2 minima, deepest barrier 4.41; of the grid on this line, not of the network" in caption.alt
        assert "Minima are marked: 1 minimum" in write_caption(build(), topology=True).alt
