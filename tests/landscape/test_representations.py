"""What is printed of an object that holds arrays: a line, and none of its values."""

import pytest
import torch
from torch import nn

from collectors.networks.readers import describe_network, read_network
from landscape import pca_plane, random_plane
from landscape.functions import evaluate
from landscape.grid.landscape_file import read_landscape
from landscape.planes import plane_through, random_line
from landscape.planes.networks import Network, networks_text


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
