import warnings

import numpy as np
import pytest
import torch
from torch import nn

from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import CheckpointFile, MemoryState, write_checkpoint
from landscape.errors import DegenerateTrajectoryError
from landscape.planes import projection
from landscape.planes.directions import inner_product
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


def flat(space, arrays):
    return np.concatenate([np.asarray(arrays(tensor.name)).reshape(-1).astype(float) for tensor in space.trainable])


def matrix(space, states):
    return np.stack([flat(space, state.read) for state in states])


def vectors(space, result):
    return np.stack([flat(space, direction.__getitem__) for direction in result.directions])


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


def test_the_two_centerings_differ():
    space, states = train(6)
    none, mean = (principal_directions(states, space, centering=c) for c in ("none", "mean"))
    assert abs(inner_product(none.directions[0], mean.directions[0], space)) < 0.999


@pytest.mark.parametrize("centering", ["none", "mean"])
@pytest.mark.parametrize("block_bytes", [1, 8 * 7 * 3, 8 * 7 * 11, 4096])
def test_the_block_size_changes_nothing(centering, block_bytes, monkeypatch):
    space, states = train(7)
    whole = principal_directions(states, space, centering=centering)
    monkeypatch.setattr(projection, "_BLOCK_BYTES", block_bytes)
    blocks = principal_directions(states, space, centering=centering)
    np.testing.assert_allclose(vectors(space, blocks), vectors(space, whole), atol=1e-12)
    np.testing.assert_allclose(blocks.explained_variance_ratio, whole.explained_variance_ratio, rtol=1e-12)


def test_no_more_than_a_block_is_read_at_a_time(monkeypatch):
    monkeypatch.setattr(projection, "_BLOCK_BYTES", 4 * 8 * 10)
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
    assert max(longest) == 10


def test_spans_trainable_parameters_only_with_tied_weights_once():
    space, states = train(4)
    result = principal_directions(states, space)
    expected = {"convolution.weight", "convolution.bias", "normalization.weight", "normalization.bias"}
    assert set(result.directions[0]) == expected | {"head.weight", "head.bias"}
    assert "head.weight" in states[0].shapes
    assert "tied.weight" not in states[0].shapes


def test_buffers_and_frozen_parameters_have_no_influence():
    space, states = train(5)
    changed = []
    for state in states:
        arrays = {name: state.read(name) for name in state.shapes}
        arrays["normalization.running_var"] += 100
        arrays["frozen.weight"][:] = np.nan
        changed.append(MemoryState(arrays))
    one, two = principal_directions(states, space), principal_directions(changed, space)
    np.testing.assert_array_equal(vectors(space, one), vectors(space, two))


@pytest.mark.parametrize("centering", ["none", "mean"])
def test_the_order_of_the_earlier_checkpoints_changes_nothing_but_signs(centering):
    space, states = train(7)
    mixed = [states[i] for i in (4, 0, 5, 2, 1, 3)] + [states[-1]]
    one, two = (vectors(space, principal_directions(s, space, centering=centering)) for s in (states, mixed))
    signs = np.sign(np.sum(one * two, axis=1, keepdims=True))
    np.testing.assert_allclose(two * signs, one, atol=1e-11)


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


def test_checkpoint_files_give_what_memory_gives(tmp_path):
    space, states = train(5, torch.float32)
    files = []
    for index, state in enumerate(states):
        write_checkpoint(tmp_path / f"{index}.safetensors", {name: state.read(name) for name in state.shapes})
        files.append(CheckpointFile(tmp_path / f"{index}.safetensors"))
    one, two = principal_directions(states, space), principal_directions(files, space)
    np.testing.assert_array_equal(vectors(space, one), vectors(space, two))


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


def test_a_planar_trajectory_is_explained_completely():
    space, states = combined([(3, 1), (-2, 2), (1, -1), (0.5, 4), (0, 0)])
    result = principal_directions(states, space)
    assert result.explained_variance_ratio.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_checkpoints(count):
    space, states = train(3)
    with pytest.raises(DegenerateTrajectoryError, match=f"at least 3 checkpoints, but there are {count}.*more often"):
        principal_directions(states[:count], space)


@pytest.mark.parametrize("centering", ["none", "mean"])
def test_equal_checkpoints(centering):
    space, states = train(3)
    with pytest.raises(DegenerateTrajectoryError, match="all 4 checkpoints hold the same trainable weights"):
        principal_directions([states[0]] * 4, space, centering=centering)


@pytest.mark.parametrize("centering", ["none", "mean"])
@pytest.mark.parametrize("path", [[(5, 0), (3, 0), (1, 0), (0, 0)], [(2, 1), (2, 1), (0, 0), (0, 0)]])
def test_checkpoints_on_a_line(centering, path):
    space, states = combined(path)
    with pytest.raises(DegenerateTrajectoryError, match=r"only 1 independent differences to .* lie on a line"):
        principal_directions(states, space, centering=centering)
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


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("position", [1, 3])
def test_weights_that_are_not_finite_are_named(value, position):
    space, states = train(4)
    arrays = {name: states[position].read(name) for name in states[position].shapes}
    arrays["head.weight"][2, 1] = value
    states[position] = MemoryState(arrays, f"checkpoint {position}")
    with pytest.raises(CheckpointError, match=rf"checkpoint {position} holds NaN or infinite values in 'head.weight'"):
        principal_directions(states, space)
