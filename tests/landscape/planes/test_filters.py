"""A random direction is as long as the weights behind each output of a layer, which the layer itself tells."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from runs import seeded
from torch import nn

from collectors.networks.readers import describe_network, read_network
from collectors.networks.weight_space import TensorInfo
from collectors.weights.safetensors_file import MemoryState
from landscape import random_plane
from landscape.planes.directions import random_direction

IMAGES = torch.rand(1, 4, 5, 5) + 0.5
LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), torch.rand(1, 6) + 0.5),
    "bilinear": (lambda: nn.Bilinear(6, 6, 3), torch.rand(1, 6) + 0.5),
    "convolution": (lambda: nn.Conv2d(4, 6, 3), IMAGES),
    "grouped convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2), IMAGES),
    "depthwise convolution": (lambda: nn.Conv2d(4, 8, 3, groups=4), IMAGES),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 6, 3), IMAGES),
    "grouped transposed convolution": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), IMAGES),
    "depthwise transposed convolution": (lambda: nn.ConvTranspose2d(4, 4, 3, groups=4), IMAGES),
    "one-dimensional transposed convolution": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), IMAGES[..., 0]),
}


def direction_of(network, **options):
    return random_direction(describe_network(network), MemoryState(read_network(network)), seed=0, index=0, **options)  # type: ignore[arg-type]


def weights_of_output(layer, inputs, output):
    """Returns which weights an output channel depends on."""
    arguments = (inputs, inputs) if isinstance(layer, nn.Bilinear) else (inputs,)
    (gradient,) = torch.autograd.grad(layer(*arguments)[:, output].sum(), layer.weight)
    return gradient != 0


@pytest.mark.parametrize("name", LAYERS)
def test_the_direction_is_as_long_as_the_weights_of_each_output(name):
    make, inputs = LAYERS[name]
    layer = seeded(make)
    direction = torch.from_numpy(direction_of(layer)["weight"]).double()
    outputs = layer.bias.numel()
    seen = torch.zeros(layer.weight.shape, dtype=torch.int64)
    for output in range(outputs):
        own = weights_of_output(layer, inputs, output)
        ratio = direction[own].norm() / layer.weight.detach().double()[own].norm()
        assert ratio == pytest.approx(1, rel=1e-6)
        seen += own
    assert (seen == 1).all()  # the outputs share no weights, so these are all filters


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (lambda: nn.Embedding(7, 4), ["weight"]),
        (lambda: nn.MultiheadAttention(8, 2), ["in_proj_weight", "out_proj.weight"]),
        (
            lambda: nn.MultiheadAttention(8, 2, kdim=3, vdim=5),
            ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"],
        ),
        (lambda: nn.GRU(4, 3), ["weight_ih_l0", "weight_hh_l0"]),
    ],
)
def test_tokens_projections_and_gates_are_rows(layer, names):
    network = seeded(layer)
    direction, weights = direction_of(network), dict(network.named_parameters())
    assert {name for name, values in direction.items() if values.any()} == set(names)
    for name in names:
        lengths = np.linalg.norm(direction[name].astype(np.float64), axis=1)
        np.testing.assert_allclose(lengths, weights[name].detach().double().norm(dim=1), rtol=1e-6)


def test_a_parametrized_transposed_convolution_has_the_filters_of_its_layer():
    layer = seeded(lambda: nn.utils.parametrizations.weight_norm(nn.ConvTranspose2d(4, 6, 3, groups=2)))
    tensors = {tensor.name: tensor for tensor in describe_network(nn.Sequential(layer)).tensors}
    weight = tensors["0.parametrizations.weight.original1"]
    assert (weight.filter_axes, weight.filter_groups) == ((1,), 2)


@pytest.mark.parametrize(
    "layer",
    [lambda: nn.LayerNorm((3, 4)), lambda: nn.RMSNorm((3, 4)), lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True)],
)
def test_biases_and_normalization_parameters_stay_however_many_axes_they_have(layer):
    network = seeded(layer)
    still = {name for name, values in network.named_parameters() if "proj" not in name or name.endswith("bias")}
    assert any(dict(network.named_parameters())[name].ndim >= 2 for name in still)
    for name, values in direction_of(network).items():
        assert values.any() == (name not in still)
    moved = direction_of(network, perturb_one_dimensional=True)
    for name in still:
        weights = dict(network.named_parameters())[name].detach().double()
        assert np.linalg.norm(moved[name].astype(np.float64)) == pytest.approx(float(weights.norm()), rel=1e-6)


WEIGHT_NORMS = {
    "parametrization": (nn.utils.parametrizations.weight_norm, "0.parametrizations.weight.original"),
    "of before": (nn.utils.weight_norm, "0.weight_"),
    "of the whole": (partial(nn.utils.parametrizations.weight_norm, dim=None), "0.parametrizations.weight.original"),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("name", WEIGHT_NORMS)
def test_gains_of_weight_normalization_stay(name):
    make, prefix = WEIGHT_NORMS[name]
    network = seeded(lambda: nn.Sequential(make(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3)))
    gain, weight = (f"{prefix}{end}" for end in ("gv" if name == "of before" else "01"))
    values = {key: value.detach().double().numpy() for key, value in network.named_parameters()}
    direction = direction_of(network)
    assert {key for key, array in direction.items() if array.any()} == {weight, "2.weight"}
    np.testing.assert_allclose(
        np.linalg.norm(direction[weight].astype(float), axis=1), np.linalg.norm(values[weight], axis=1), rtol=1e-6
    )
    moved = direction_of(network, perturb_one_dimensional=True)[gain].astype(float)
    assert np.linalg.norm(moved) == pytest.approx(np.linalg.norm(values[gain]), rel=1e-6)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_planes_in_which_gains_moved_are_other_planes():
    plain = seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)))
    assert "gains" not in random_plane(plain).identity
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(plain[0]), plain[1])
    assert random_plane(normed).identity["gains"] == 1


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_filters_of_one_weight_are_named_in_a_note():
    network = seeded(lambda: nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 3)))
    weights = network[0].weight.detach().abs()
    plane = random_plane(network)
    assert torch.equal(torch.from_numpy(plane.directions[0]["0.weight"]).abs(), weights)
    assert plane.notes == (
        "Filters of one weight, each of which a direction moves by exactly its size: those of '0.weight'.",
    )
    assert random_plane(network, normalization="layer").notes == ()
    assert random_plane(network[2]).notes == ()


def test_a_network_whose_filters_are_told_otherwise_is_the_same():
    space = describe_network(seeded(lambda: nn.Linear(3, 2)))
    other = replace(space, tensors=tuple(replace(tensor, filter_axes=(1,)) for tensor in space.tensors))
    assert space != other
    assert space.differences(other) == []
    wider = replace(space, tensors=tuple(replace(tensor, trainable=False) for tensor in space.tensors))
    assert len(space.differences(wider)) == 2


def test_filters_are_a_view_of_the_array():
    array = np.arange(4 * 3 * 2 * 2.0).reshape(4, 3, 2, 2)
    info = TensorInfo("w", array.shape, "float64", "parameter", True, (1,), 2)
    filters = info.filters(array)
    assert filters.shape[: info.filter_dimensions] == (2, 3)
    np.testing.assert_array_equal(filters[1, 2], array[2:, 2])
    filters[0, 0] = -1
    assert (array[:2, 0] == -1).all()
    assert (array[2:, 0] >= 0).all()
