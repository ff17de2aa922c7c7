"""What is said of a file, by ``landscape info``, on the page, in pictures; and what is printed of objects: one line."""

import re

import numpy as np
import pytest
import torch
from data_sets import with_test_set
from examples import batch_norm
from landscape_examples import write_landscape
from surfaces import surface
from torch import nn
from who_is_there import with_networks

from collectors.networks.readers import describe_network, read_network
from landscape import Landscape, evaluate, pca_plane, random_plane
from landscape.facts import page_facts, seeds_text, summary_text
from landscape.figures import plot_contour, plot_profile
from landscape.grid.landscape_file import read_landscape
from landscape.interactive.content import landscape_content
from landscape.planes import plane_through, random_line
from landscape.planes.networks import Network, networks_text
from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.summary_json import summary_json


def told(landscape):
    return dict(re.split(r"  +", line, maxsplit=1) for line in summary_text(landscape).splitlines())


class TestSeeds:
    @pytest.mark.parametrize("dimension", [1, 2])
    def test_the_seed_of_the_directions_is_that_of_the_plane(self, tmp_path, dimension):
        network = batch_norm()[1]
        plane = (random_line, random_plane)[dimension - 1](network, seed=3)
        path = tmp_path / "a.h5"
        evaluate(plane, batch_norm, size=3, output=path, device_ids=[0], progress=False)
        landscape = Landscape.load(path)
        assert landscape.attributes["directions_seed"] == 3
        text = "directions' seed 3, samples' seed 0 (nothing was drawn by it)"
        assert told(landscape)["seeds"] == dict(page_facts(landscape))["seeds"] == text
        content = landscape_content(landscape, "a")
        assert ["seeds", text] in content["facts"]
        assert all("seed 3" in label for label in content["axis_labels"])
        ax = (plot_profile, plot_contour)[dimension - 1](landscape)
        assert "seed 3" in ax.get_xlabel().replace("\n", " ")

    def test_what_the_survey_drew_is_said(self):
        for attributes, text in (
            ({"seed": 5, "samples": "random"}, "samples' seed 5"),
            ({"seed": 5, "samples": "first"}, "samples' seed 5 (nothing was drawn by it)"),
            ({"seed": 5, "sampling": {"mode": "adaptive", "finished": True}}, "samples' seed 5"),
            ({"seed": 5, "directions_seed": 0, "samples": "random"}, "directions' seed 0, samples' seed 5"),
            ({}, None),
        ):
            assert seeds_text(surface(**attributes)) == text

    def test_a_seed_that_is_none_is_refused(self):
        with pytest.raises(TypeError, match="directions_seed must be"):
            write_landscape("/nowhere.h5", surface(directions_seed="3"))


@pytest.mark.parametrize(
    ("decomposition", "rows", "text"),
    [
        ("points", None, "line between networks"), ("points", 7, "plane through networks"),
        ("custom", None, "given direction"), ("custom", 7, "given directions"),
    ],
)  # fmt: skip
def test_info_page_and_repr_say_what_is_cut(decomposition, rows, text):
    landscape = Landscape(surface(rows, decomposition=decomposition))
    shape = " x ".join(str(length) for length in landscape.shape[::-1])
    assert told(landscape)["landscape"] == f"{text}, {shape} points"
    assert repr(landscape).startswith(f"Landscape({text}, {shape} points;")
    assert landscape_content(landscape, "a")["note"].startswith(f"{text}; ")


def test_points_without_a_value_are_not_called_interpolated():
    data = surface(33, 33)
    sampling = AdaptiveSampling(data.shape)
    data.status[:] = PointStatus.PENDING
    for _ in range(2):
        points = sampling.next_points(data.loss, data.status)
        data.status.flat[points] = PointStatus.MEASURED
    filled = sampling.fill(data.metrics, data.status)
    data.status[:] = filled.status
    data.status[-1, -1], data.status[0, 0] = PointStatus.PENDING, PointStatus.FAILED
    data.attributes["sampling"] = {"mode": "adaptive", "finished": False} | filled.report.to_json()
    report = filled.report
    assert report.interpolated > 0
    text = f"{report.measured - 2} of 1089 points measured, {report.interpolated} interpolated, 1 without a value; "
    assert told(Landscape(data))["sampling"].startswith(text)
    data.metrics |= {name: data.loss for name in ("loss@test", "loss_stderr@test", "accuracy")}
    assert told(Landscape(data))["sampling"].endswith("; of accuracy, loss@test no error is estimated")


@pytest.mark.parametrize("rows", [None, 7])
def test_info_and_page(rows):
    data = surface(
        rows, num_samples=512, samples="random", seed=2, normalization="none", centering="last", buffers="fixed",
        versions={"torch": "2.13"}, notes=["no standard error"], step_per_epoch=4,
        measurement_plan={"batch_size": 64, "threads": 2},
    )  # fmt: skip
    data.metrics["loss"].flat[3] = np.inf
    landscape = Landscape(data)
    facts = dict(page_facts(landscape))
    assert told(landscape) == facts
    assert facts["loss"].endswith("1 not finite")
    assert len(facts) >= 15


class TestDataSets:
    def test_each_set_and_its_metrics_are_named(self):
        landscape = Landscape(with_test_set(surface()))
        said = told(landscape)
        assert said["data sets"] == "train (the main one: loss), test (loss@test)"
        low, high = landscape["loss@test"].min(), landscape["loss@test"].max()
        assert said["loss@test"] == f"{low:.4g} to {high:.4g}"
        assert f"on test {low:.4g} to {high:.4g}" in repr(landscape)
        found = summary_json(landscape)
        path = landscape.checkpoints
        assert path is not None
        assert found["checkpoints"]["projected_loss@test"] == path.projected["loss@test"].tolist()
        assert "loss@test" in found["metrics"]
        assert "data sets" not in told(Landscape(surface()))

    def test_networks_have_an_own_loss_on_each(self):
        data = with_networks()
        for values in (data.checkpoints.metrics, data.checkpoints.projected):
            values["loss"][:] = 1.5
        data.checkpoints.status[:] = data.checkpoints.projected_status[:] = PointStatus.MEASURED
        both = with_test_set(data)
        row = int(both.checkpoints.networks[-1])
        both.checkpoints.metrics["loss@test"][row], both.checkpoints.projected["loss@test"][row] = 2.5, 2.25
        said = told(Landscape(both))["network"]
        assert said.endswith("own loss on train 1.5, on the plane 1.5; own loss on test 2.5, on the plane 2.25")


class TestValuesThatAreNotFinite:
    def test_the_one_line_says_how_many_there_are_as_info_does(self):
        data = with_test_set(surface())
        data.metrics["loss"][0, :3] = np.inf
        data.metrics["loss@test"][0, 0] = np.nan
        landscape = Landscape(data)
        first, second = repr(landscape).split("; ")[1:3]
        assert first == f"loss {told(landscape)['loss']}"
        assert first.endswith(", 3 not finite")
        assert second.startswith(f"on test {told(landscape)['loss@test']}")
        assert "1 not finite" in second

    def test_the_one_line_does_not_say_nan_to_nan(self):
        data = surface()
        data.metrics["loss"][...] = np.inf
        assert "; loss without a finite value" in repr(Landscape(data))
        assert told(Landscape(data))["loss"] == "no finite value"
        # Points without a value yet are counted once.
        data = surface()
        data.metrics["loss"][0, :3] = np.nan
        data.status[0, :3] = PointStatus.PENDING
        assert "not finite" not in repr(Landscape(data))
        assert repr(Landscape(data)).count(" points measured") == 1


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(200, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 2))


def callback_fn():
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(8, 200, generator=generator), torch.randint(0, 2, (8,), generator=generator)
    return nn.CrossEntropyLoss(), network(0), samples, {}


@pytest.fixture(scope="module")
def landscape():
    return evaluate(plane_through(network(0), network(1), network(2)), callback_fn, size=3, progress=False)


def planes():
    return {
        "random plane": random_plane(network(0), seed=0),
        "random line": random_line(network(0), seed=0),
        "points plane": plane_through(network(0), network(1), network(2)),
        "pca plane": pca_plane([network(seed) for seed in range(5)]),
    }


@pytest.mark.parametrize("kind", ["random plane", "random line", "points plane", "pca plane"])
def test_a_plane_is_one_line(kind):
    plane = planes()[kind]
    text = repr(plane)
    assert text.startswith(f"Plane({kind} of Sequential (61502 weights); normalization ")
    assert "\n" not in text
    assert "array" not in text
    assert len(text) < 300
    assert f"norms {', '.join(f'{length:.4g}' for length in plane.norms)}" in text
    assert ("cosine " in text) == (plane.dimension == 2)
    assert ("explained variance" in text) == (kind == "pca plane")
    assert ("; networks 'a', 'b', 'c'" in text) == (kind == "points plane")
    assert ("; 5 checkpoints" in text) == (kind == "pca plane")


def test_everything_that_holds_arrays_is_one_line(landscape, tmp_path):
    plane, data = planes()["points plane"], read_landscape(landscape.save(tmp_path / "landscape.h5"))
    held = [plane.projection, plane.space, landscape, data, data.directions, data.checkpoints, data.origin]
    for item in held:
        text = repr(item)
        assert text.startswith(f"{type(item).__name__}(")
        assert "\n" not in text
        assert len(text) < 300 + len(str(tmp_path))
    assert repr(plane.space) == "WeightSpace(Sequential of torch; 6 parameters, 3 buffers; 61502 trainable weights)"
    assert repr(plane.projection).startswith("Projection(3 networks on a plane; at most ")
    text = f"LandscapeData(3 x 3 points, 9 measured; metrics loss, loss_stderr; 3 networks projected; {data.path})"
    assert repr(data) == text
    assert repr(data.checkpoints) == "CheckpointsData(3 networks, 3 measured; metrics loss, loss_stderr)"


def test_equal_spaces_are_still_equal_and_have_equal_hashes():
    first, second = describe_network(network(0)), describe_network(network(1))
    assert first == second
    assert hash(first) == hash(second)
    assert read_network(network(0)).keys() == {tensor.name for tensor in first.tensors}


def test_many_networks_are_counted():
    def checkpoints(run, count):
        return [Network(None, run=run, number=number) for number in range(count)]

    assert networks_text([*checkpoints("sgd", 3), *checkpoints("adam", 1)]) == (
        "3 checkpoints of 'sgd', 1 checkpoint of 'adam'"
    )
    assert networks_text(checkpoints("", 2)) == "2 checkpoints"
    assert networks_text([Network(None, f"seed {seed}") for seed in range(9)]) == (
        "networks 'seed 0', 'seed 1', 'seed 2', 'seed 3' and 5 more"
    )
    assert len(networks_text([item for index in range(50) for item in checkpoints("r" * 100 + str(index), 1)])) < 250
