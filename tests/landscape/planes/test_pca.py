import warnings

import numpy as np
import pytest
import torch
from least_squares import flat
from torch import nn

from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import MemoryState
from landscape.errors import DegenerateTrajectoryError
from landscape.planes import projection
from landscape.planes.pca import principal_directions


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.normalization = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)
        self.tied = nn.Linear(4, 5, bias=False)
        self.tied.weight = self.head.weight
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        hidden = self.normalization(self.convolution(x)).relu().mean((2, 3))
        return self.head(hidden) + self.tied(hidden)


def train(count, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    network = Small().to(dtype)
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.3, momentum=0.5)
    states = []
    for index in range(count):
        x, y = torch.randn(16, 1, 6, 6).to(dtype), torch.randint(5, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x).float(), y).backward()
        optimizer.step()
        states.append(MemoryState(read_network(network), f"checkpoint {index}"))
    return describe_network(network), states


def matrix(space, states):
    return np.stack([flat(space, {name: state.read(name) for name in state.shapes}) for state in states])


def vectors(space, result):
    return np.stack([flat(space, direction) for direction in result.directions])


@pytest.mark.parametrize(("count", "components"), [(3, 2), (9, 2), (9, 1), (9, 4)])
def test_mean_centering_equals_scikit_learn_with_its_sign(count, components):
    from sklearn.decomposition import PCA

    space, states = train(count)
    oracle = PCA(components, svd_solver="full").fit(matrix(space, states))
    result = principal_directions(states, space, centering="mean", components=components)
    np.testing.assert_allclose(vectors(space, result), oracle.components_, atol=1e-10)
    np.testing.assert_allclose(result.singular_values, oracle.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(result.explained_variance_ratio, oracle.explained_variance_ratio_, rtol=1e-10)


def test_no_centering_equals_the_svd_of_the_differences_to_the_last():
    space, states = train(8)
    rows = matrix(space, states)
    _, sigma, components = np.linalg.svd(rows - rows[-1], full_matrices=False)
    result = principal_directions(states, space)
    ours = vectors(space, result)
    for mine, theirs in zip(ours, components[:2], strict=True):
        np.testing.assert_allclose(mine, theirs * np.sign(theirs[np.argmax(np.abs(theirs))]), atol=1e-10)
        assert mine[np.argmax(np.abs(mine))] > 0
    np.testing.assert_allclose(result.singular_values, sigma[:2], rtol=1e-11)
    np.testing.assert_allclose(result.explained_variance_ratio, sigma[:2] ** 2 / (sigma**2).sum(), rtol=1e-11)
    np.testing.assert_allclose(ours @ ours.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("centering", ["none", "mean"])
@pytest.mark.parametrize("block_bytes", [1, 8 * 7 * 3, 8 * 7 * 11, 4096])
def test_the_block_size_changes_nothing(centering, block_bytes, monkeypatch):
    space, states = train(7)
    whole = principal_directions(states, space, centering=centering)
    monkeypatch.setattr(projection, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(projection, "_FEWEST_ELEMENTS", 1)
    blocks = principal_directions(states, space, centering=centering)
    np.testing.assert_allclose(vectors(space, blocks), vectors(space, whole), atol=1e-12)
    np.testing.assert_allclose(blocks.explained_variance_ratio, whole.explained_variance_ratio, rtol=1e-12)


@pytest.mark.parametrize(("fewest", "expected"), [(1, 10), (16, 16)])
def test_no_more_than_a_block_is_read_at_a_time(fewest, expected, monkeypatch):
    monkeypatch.setattr(projection, "_BLOCK_BYTES", 4 * 8 * 10)
    monkeypatch.setattr(projection, "_FEWEST_ELEMENTS", fewest)
    space, states = train(4)
    longest = []

    class Watched(MemoryState):
        def read(self, name):
            raise AssertionError("a whole tensor was read")

        def read_block(self, name, start, stop):
            longest.append(stop - start)
            return super().read_block(name, start, stop)

    watched = [Watched({name: state.read(name) for name in state.shapes}) for state in states]
    principal_directions(watched, space)
    assert max(longest) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_checkpoints_are_compared_in_float64(dtype):
    space, states = train(6, dtype)
    rows = matrix(space, states)
    _, sigma, components = np.linalg.svd(rows - rows[-1], full_matrices=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = principal_directions(states, space)
    assert all(values.dtype == np.float32 for values in result.directions[0].values())
    ours = vectors(space, result)
    np.testing.assert_allclose(np.abs(np.sum(ours * components[:2], axis=1)), 1, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-7)
    np.testing.assert_allclose(result.singular_values, sigma[:2], rtol=1e-9)


def combined(coefficients):
    """Checkpoints at origin + a * u + b * v, exactly on a plane."""
    space, (first, second, third) = train(3)
    states = []
    for a, b in coefficients:
        arrays = {n: first.read(n) for n in first.shapes}
        for tensor in space.trainable:
            u, v = (s.read(tensor.name) - first.read(tensor.name) for s in (second, third))
            arrays[tensor.name] = arrays[tensor.name] + a * u + b * v
        states.append(MemoryState(arrays, f"({a}, {b})"))
    return space, states


@pytest.mark.parametrize("centering", ["none", "mean"])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        *[([(3, 1)] * count, f"at least 3 checkpoints, but there are {count}.*more often") for count in range(3)],
        ([(3, 1)] * 4, "all 4 checkpoints hold the same trainable weights"),
        ([(5, 0), (3, 0), (1, 0), (0, 0)], r"only 1 independent differences to .* lie on a line"),
        ([(2, 1), (2, 1), (0, 0), (0, 0)], r"only 1 independent differences to .* lie on a line"),
    ],
)
def test_checkpoints_that_span_no_plane(centering, path, text):
    space, states = combined(path)
    with pytest.raises(DegenerateTrajectoryError, match=text):
        principal_directions(states, space, centering=centering)
    if "line" in text:
        assert len(principal_directions(states, space, centering=centering, components=1).directions) == 1


def test_a_direction_as_short_as_the_rounding_warns():
    network = nn.Linear(30, 30)
    space = describe_network(network)
    start = read_network(network)
    generator = np.random.default_rng(0)
    step = {name: 1e-5 * generator.standard_normal(array.shape) for name, array in start.items()}
    states = [
        MemoryState({name: (array + k * step[name]).astype(np.float32) for name, array in start.items()})
        for k in range(4)
    ]
    with pytest.warns(UserWarning, match="as short as the rounding of the stored weights"):
        principal_directions(states, space)


def test_a_nearly_straight_path_warns_and_keeps_the_note():
    space, states = combined([(3, 0), (2, 0.004), (1, -0.003), (0, 0)])
    with pytest.warns(UserWarning, match=r"nearly straight: its second .* only 0\.0001 % of its variance") as warned:
        result = principal_directions(states, space)
    assert result.notes == (str(warned[0].message),)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space, states = combined([(3, 0), (2, 0.4), (1, -0.3), (0, 0)])
        assert principal_directions(states, space).notes == ()
