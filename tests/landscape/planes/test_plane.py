import dataclasses

import numpy as np
import pytest
import torch
from least_squares import flat, least_squares
from torch import nn

from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import MemoryState
from landscape.errors import PlaneError
from landscape.planes import line_between, pca_plane, plane_through, projection, random_line, random_plane
from landscape.planes.projection import project


def network(dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.Flatten(), nn.Linear(48, 40), nn.Linear(40, 4))
    layers[4].weight.requires_grad_(False)
    return layers.to(dtype)


def states(count, dtype=torch.float64):
    return [MemoryState(read_network(network(dtype, seed)), f"state {seed}") for seed in range(count)]


def draw(space, seed, scale=1.0):
    generator = np.random.default_rng(seed)
    return {tensor.name: scale * generator.standard_normal(tensor.shape) for tensor in space.trainable}


# --- projection ---


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-6, 1e5)])
@pytest.mark.parametrize("block_bytes", [8, 1000, 2**26])
def test_projection_equals_least_squares_on_whole_vectors(scales, block_bytes, monkeypatch):
    monkeypatch.setattr(projection, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(projection, "_FEWEST_ELEMENTS", 1)
    space, arrays = describe_network(network()), [read_network(network(seed=seed)) for seed in range(5)]
    # Far from orthogonal, so that dot products with each direction alone would be wrong.
    first, second = draw(space, 0), draw(space, 1)
    second = {name: scales[1] * (values + 0.8 * first[name]) for name, values in second.items()}
    first = {name: scales[0] * values for name, values in first.items()}
    path = project(list(map(MemoryState, arrays)), MemoryState(arrays[1]), (first, second), space)
    expected, rest, length = least_squares(space, (first, second), arrays[1], arrays)
    np.testing.assert_allclose(np.stack([path.x, path.y], axis=1), expected, rtol=1e-10, atol=1e-18)
    np.testing.assert_allclose(path.residual, rest, rtol=1e-11)
    np.testing.assert_allclose(path.norm, length, rtol=1e-13)
    # The origin is exactly zero.
    assert [str(values[1]) for values in (path.x, path.y, path.residual, path.norm)] == ["0.0"] * 4


def test_a_residual_far_smaller_than_the_norm_keeps_its_digits():
    space, origin = describe_network(network()), read_network(network())
    directions = (draw(space, 0), draw(space, 1))
    aside = draw(space, 2, 1e-9)
    arrays = dict(origin)
    for name, values in aside.items():
        arrays[name] = arrays[name] + 2.0 * directions[0][name] - 3.0 * directions[1][name] + values
    path = project([MemoryState(arrays)], MemoryState(origin), directions, space)
    _, expected, _ = least_squares(space, directions, {name: 0 * values for name, values in aside.items()}, [aside])
    assert path.residual == pytest.approx(expected, rel=1e-4)


# --- axes ---


def test_random_axes_are_symmetric_with_an_exact_zero():
    plane = random_plane(network())
    for size in range(3, 60):
        x, y = plane.axes((size, size + 1))
        assert (x.shape, y.shape) == ((size,), (size + 1,))
        np.testing.assert_array_equal(x, -x[::-1])
        np.testing.assert_allclose(x, np.linspace(-1, 1, size), atol=1e-15)
        assert (x[0], x[-1]) == (-1, 1)
        assert size % 2 == 0 or x[size // 2] == 0
        assert np.all(np.diff(x) > 0)


def test_trajectory_axes_have_the_range_and_a_margin_each_side():
    plane = pca_plane(states(6), network=network())
    path = plane.projection
    x, y = plane.axes(11)
    for axis, values in ((x, path.x), (y, path.y)):
        width = values.max() - values.min()
        assert axis[0] == pytest.approx(values.min() - 0.2 * width)
        assert axis[-1] == pytest.approx(values.max() + 0.2 * width)
        np.testing.assert_allclose(np.diff(axis), 1.4 * width / 10)
        assert axis.dtype == np.float64
    tight, _ = plane.axes(5, margin=0.0)
    assert (tight[0], tight[-1]) == (path.x.min(), path.x.max())


def test_axes_of_lines_and_of_planes_through_points():
    x, y = line_between(network(seed=0), network(seed=1)).axes(15)
    assert y is None
    np.testing.assert_allclose(x, np.linspace(-0.2, 1.2, 15), atol=1e-15)
    assert random_line(network()).axes(5)[1] is None
    x, y = plane_through(*(network(seed=seed) for seed in range(3))).axes(8, margin=0.5)
    np.testing.assert_allclose(np.stack([x, y]), [np.linspace(-0.5, 1.5, 8)] * 2, atol=1e-15)


def flattened(plane, **changes):
    return dataclasses.replace(plane, projection=dataclasses.replace(plane.projection, **changes))


def test_an_axis_without_range_gets_the_other_ones_length_and_a_warning():
    plane = plane_through(*(network(seed=seed) for seed in range(3)))
    flat_plane = flattened(plane, y=np.full(3, 0.25))
    with pytest.warns(UserWarning, match="no range along y; that axis was given the width"):
        x, y = flat_plane.axes(7)
    assert np.all(np.diff(y) > 0)
    assert (y[0] + y[-1]) / 2 == pytest.approx(0.25)
    assert (y[-1] - y[0]) * plane.norms[1] == pytest.approx((x[-1] - x[0]) * plane.norms[0])


def test_two_axes_without_range_get_a_share_of_the_origins_norm():
    plane = flattened(plane_through(*(network(seed=seed) for seed in range(3))), x=np.zeros(3), y=np.zeros(3))
    with pytest.warns(UserWarning, match="no range along") as caught:
        axes = plane.axes(5)
    assert len(caught) == 2
    size = np.linalg.norm(flat(plane.space, plane.origin))
    for axis, length in zip(axes, plane.norms, strict=True):
        assert axis[-1] * length == pytest.approx(0.1 * size)
        assert np.all(np.diff(axis) > 0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"size": 2}, ValueError, "size must be an int of at least 3"),
        ({"size": 4.0}, TypeError, "size must be an int"),
        ({"size": (4, 4, 4)}, ValueError, "size must be an int, or 2 ints"),
        ({"size": (4, 1)}, ValueError, r"size\[1\] must be an int of at least 3"),
        ({"size": 4, "margin": -0.1}, ValueError, "margin must be a finite number of at least 0"),
    ],
)
def test_axes_name_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        random_plane(network()).axes(**arguments)


# --- points and contents ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_point_is_origin_plus_directions_in_the_parameters_type(dtype):
    plane = random_plane(network(dtype))
    state = plane.point((0.3, -0.7))
    assert set(state) == {tensor.name for tensor in plane.space.tensors}
    for tensor in plane.space.trainable:
        exact = plane.origin[tensor.name].astype(float)
        exact = exact + 0.3 * plane.directions[0][tensor.name] - 0.7 * plane.directions[1][tensor.name]
        assert state[tensor.name].dtype == plane.origin[tensor.name].dtype
        rtol = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 2**-8}[dtype]
        np.testing.assert_allclose(state[tensor.name].astype(float), exact, rtol=rtol, atol=rtol * 0.1)
    np.testing.assert_array_equal(state["4.weight"], plane.origin["4.weight"])
    np.testing.assert_array_equal(state["1.running_mean"], plane.buffers["1.running_mean"])
    np.testing.assert_equal(plane.point((0, 0)), {**plane.origin, **plane.buffers})


def test_a_point_owns_its_arrays():
    plane = random_plane(network())
    before = plane.origin["3.weight"].copy()
    state = plane.point((0.0, 0.0))
    for values in state.values():
        values += 1
    np.testing.assert_array_equal(plane.origin["3.weight"], before)
    assert plane.buffers["1.num_batches_tracked"] == 0


def test_a_point_names_wrong_coordinates():
    plane = random_plane(network())
    with pytest.raises(ValueError, match="coordinates must be 2 numbers, one for each direction"):
        plane.point((1.0,))
    with pytest.raises(ValueError, match=r"coordinates\[1\] must be a finite number"):
        plane.point((1.0, np.nan))


def test_dimension_norms_and_cosine():
    plane, line = random_plane(network()), random_line(network())
    assert (plane.dimension, line.dimension) == (2, 1)
    vectors = [flat(plane.space, direction) for direction in plane.directions]
    np.testing.assert_allclose(plane.norms, [np.linalg.norm(v) for v in vectors], rtol=1e-13)
    assert plane.cosine == pytest.approx(vectors[0] @ vectors[1] / np.prod(plane.norms), rel=1e-10)
    assert line.cosine is None
    assert line.norms[0] == pytest.approx(plane.norms[0])


def test_a_plane_refuses_what_does_not_fit():
    plane = random_plane(network())
    first, second = plane.directions
    less = {name: array for name, array in plane.origin.items() if name != "4.weight"}
    narrow = {**second, "0.weight": second["0.weight"].astype("float32")}
    broken = {**second, "0.weight": np.full_like(second["0.weight"], np.nan)}
    for field, value, error, text in (
        ("directions", (first, second, first), ValueError, "directions must be a tuple of one direction"),
        ("origin", less, ValueError, r"origin does not fit.*4.weight \(expected .* got nothing\)"),
        ("buffers", {**plane.buffers, "more": np.zeros(1)}, ValueError, "buffers does not fit the network's .*: more"),
        ("directions", (first, narrow), ValueError, r"directions\[1\] does not fit.*0.weight .*float32"),
        ("decomposition", "svd", ValueError, "decomposition must be one of 'pca', 'random'"),
        ("directions", (first, first), PlaneError, "the two directions are parallel"),
        ("directions", (first, broken), PlaneError, "direction 1 has the norm nan"),
    ):
        with pytest.raises(error, match=text):
            dataclasses.replace(plane, **{field: value})
