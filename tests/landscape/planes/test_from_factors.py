"""Planes along what an optimizer takes for the curvature."""

import numpy as np
import pytest
import torch
from thor_networks import batches, mixed, train
from torch import nn

from collectors import CheckpointError, thor
from collectors.weights.factors_file import factor_tensors
from collectors.weights.kronecker import LayerFactors, leading_vectors
from collectors.weights.safetensors_file import write_checkpoint
from landscape import Landscape, LandscapeError, Plane, evaluate, factor_plane
from landscape.errors import PlaneError
from landscape.facts import summary_text


@pytest.fixture(scope="module")
def trained():
    """A network that THOR has moved, and the factors that it kept."""
    network = mixed()
    optimizer = thor(network, 0.01, 0.02, 0.9, frequency=2)
    optimizer.keep_factors()
    train(network, optimizer, batches(3))
    return network, optimizer.kept_factors()


def test_directions_are_the_leading_eigenvectors_of_length_one(trained):
    network, factors = trained
    plane = factor_plane(network, factors)
    leading = leading_vectors(factors, 3)
    assert (plane.decomposition, plane.normalization) == ("factors", "none")
    np.testing.assert_allclose(plane.norms, 1, rtol=1e-6)
    assert abs(plane.cosine) < 1e-6
    assert plane.curvature.eigenvalues == (leading[0].value, leading[1].value)
    for direction, vector in zip(plane.directions, leading, strict=False):
        np.testing.assert_allclose(direction[vector.weight], vector.array, atol=1e-7)
        assert not any(part.any() for name, part in direction.items() if name != vector.weight)
    line = factor_plane(network, factors, which="third", rise=0.5)
    assert line.dimension == 1
    # Half the curvature that the optimizer sees, times the half-width squared, is the rise.
    ends = min(np.sqrt(2 * 0.5 / leading[2].value), line.longest)
    assert line.axes(5)[0][-1] == pytest.approx(ends)


def test_from_a_file_a_saved_plane_and_another_process_have_the_same_identity(trained, tmp_path):
    network, factors = trained
    path = tmp_path / "mixed_3_step_factors.safetensors"
    write_checkpoint(path, *factor_tensors(factors))
    plane = factor_plane(network.state_dict(), path, network=network, name="THOR")
    assert plane.identity == factor_plane(network, factors).identity
    assert plane.identity != factor_plane(network, factors, which=("top", "third")).identity
    loaded = Plane.load(plane.save(tmp_path / "plane.safetensors"))
    assert loaded.identity == plane.identity
    assert loaded.curvature.which == ("top", "second")
    assert loaded.curvature.num_samples is None
    np.testing.assert_array_equal(loaded.directions[0]["first.weight"], plane.directions[0]["first.weight"])


def test_a_landscape_says_whose_curvature_it_is_and_never_hessian(tmp_path):
    small = nn.Linear(3, 2)
    optimizer = thor(small, 0.1, 0.1, 0.9)
    optimizer.keep_factors()
    inputs, targets = torch.rand(8, 3), torch.randint(0, 2, (8,))
    nn.functional.cross_entropy(small(inputs), targets).backward()
    optimizer.step()
    plane = factor_plane(small, optimizer.kept_factors())
    options = {"size": 5, "device_ids": [0], "progress": False, "output": tmp_path / "own.h5"}
    landscape = evaluate(plane, lambda: (nn.CrossEntropyLoss(), small, (inputs, targets), {}), **options)
    value = plane.curvature.eigenvalues[0]
    ax = landscape.plot_contour()
    texts = [text.replace("\n", " ") for text in (ax.get_title(), ax.get_xlabel(), ax.get_ylabel())]
    assert f"1st factor eigenvector (optimizer's curvature {value:.4g})" in texts[1]
    assert "optimizer's curvature" in ax.get_title()
    information = summary_text(Landscape.load(tmp_path / "own.h5"))
    assert "optimizer's curvature: 1st" in information
    assert "They are not eigenvectors of the Hessian." in information
    assert "hessian" not in "".join(texts).lower()
    # The vectors are kept, and the landscape goes on with them.
    assert (tmp_path / "own_directions.safetensors").exists()
    again = evaluate(plane, lambda: (nn.CrossEntropyLoss(), small, (inputs, targets), {}), **options)
    assert again.report.resumed == 25


def test_what_is_refused(trained, tmp_path):
    network, factors = trained
    with pytest.raises(ValueError, match='which must not have "bottom" along factors'):
        factor_plane(network, factors, which=("top", "bottom"))
    with pytest.raises(ValueError, match="rise must be a number above 0"):
        factor_plane(network, factors, rise=0)
    with pytest.raises(TypeError, match="factors must be the path of a file of factors, or a list of LayerFactors"):
        factor_plane(network, {"first": factors[0]})
    with pytest.raises(ValueError, match="factors must not be empty"):
        factor_plane(network, [])
    with pytest.raises(PlaneError, match=r"of another network than Sequential: it has no trainable conv\.weight"):
        factor_plane(nn.Sequential(nn.Linear(3, 2)), factors)
    with pytest.raises(CheckpointError, match="cannot be read"):
        factor_plane(network, tmp_path / "none.safetensors")
    write_checkpoint(tmp_path / "weights.safetensors", {"a": np.zeros(3, np.float32)})
    with pytest.raises(CheckpointError, match="holds no factors of an optimizer"):
        factor_plane(network, tmp_path / "weights.safetensors")
    alone = [LayerFactors("weight", (1, 1), np.ones((1, 1, 1)), np.ones((1, 1, 1)), 1.0)]
    with pytest.raises(PlaneError, match="the factors have 1 directions whose eigenvalue is above zero"):
        factor_plane(nn.Linear(1, 1), alone)
    assert issubclass(PlaneError, LandscapeError)


def test_an_axis_along_which_the_optimizer_sees_nothing_ends_at_the_length_of_the_weights():
    network = nn.Linear(2, 1)
    flat = [LayerFactors("weight", (1, 2), 1e-9 * np.eye(2)[None], np.ones((1, 1, 1)), 1.0)]
    plane = factor_plane(network, flat)
    assert plane.axes(3)[0][-1] == pytest.approx(plane.longest)
    assert [note for note in plane.notes if note.startswith("along x the optimizer sees hardly any curvature (1e-09)")]
