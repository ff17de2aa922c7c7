"""Random directions: as long as the weights behind each output of a layer, which the layer itself tells."""

from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
from runs import seeded
from torch import nn

from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import MemoryState
from landscape import random_plane
from landscape.planes import directions as directions_module
from landscape.planes.directions import NORMALIZATIONS, inner_product, norm, normalize, random_direction


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.normalization = nn.BatchNorm2d(8)
        self.upward = nn.ConvTranspose2d(8, 5, 4)
        self.linear = nn.Linear(20, 6)
        self.tied = nn.Linear(20, 6, bias=False)
        self.tied.weight = self.linear.weight
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.scalar = nn.Parameter(torch.tensor(2.5))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Mixed()


def prepare(network):
    return describe_network(network), MemoryState(read_network(network))


MATRICES = ("convolution.weight", "upward.weight", "linear.weight")
# PyTorch stores a transposed convolution as (in, out, ...): its filters are the entries of axis 1.
FILTER_AXES = {"convolution.weight": 0, "upward.weight": 1, "linear.weight": 0}


def test_holds_exactly_the_trainable_parameters_with_tied_ones_once(network):
    space, origin = prepare(network)
    direction = random_direction(space, origin, seed=0, index=0)
    assert list(direction) == [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    assert "tied.weight" not in direction
    assert all(
        direction[name].shape == parameter.shape for name, parameter in network.named_parameters() if name in direction
    )
    assert all(values.dtype == np.float32 for values in direction.values())


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("block", [1, 7, 2**20])
def test_normalize_equals_the_formula_in_float64(network, normalization, block, monkeypatch):
    monkeypatch.setattr(directions_module, "_BLOCK", block)
    space, origin = prepare(network.double())
    raw = {tensor.name: np.random.default_rng(1).standard_normal(tensor.shape) for tensor in space.trainable}
    result = normalize(lambda name: raw[name].copy(), origin, space, normalization, perturb_one_dimensional=True)
    for name, values in raw.items():
        weights = origin.read(name)
        axis = FILTER_AXES.get(name)
        if normalization == "none":
            expected = values
        elif normalization == "weight":
            expected = values * np.abs(weights)
        else:
            others = tuple(i for i in range(values.ndim) if i != axis) if axis is not None else None
            others = None if normalization == "layer" else others
            keep = {"axis": others, "keepdims": True}
            expected = values * np.sqrt((weights**2).sum(**keep)) / np.sqrt((values**2).sum(**keep))
        np.testing.assert_allclose(result[name], np.reshape(expected, values.shape), rtol=1e-12)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_one_dimensional_tensors_stay_unless_asked(network, normalization):
    space, origin = prepare(network)
    still = random_direction(space, origin, seed=0, index=0, normalization=normalization)
    moved = random_direction(space, origin, seed=0, index=0, normalization=normalization, perturb_one_dimensional=True)
    small = set(still) - set(MATRICES)
    assert {"linear.bias", "normalization.weight", "scalar"} <= small
    for name in small:
        assert not still[name].any()
    assert moved["linear.bias"].any()
    assert moved["scalar"] != 0
    for name in MATRICES:
        np.testing.assert_array_equal(still[name], moved[name])
    again = normalize(moved.__getitem__, origin, space, "none")
    assert not again["linear.bias"].any()


def test_zero_filters_give_zero_and_never_nan(network):
    with torch.no_grad():
        network.linear.weight[2] = 0
    space, origin = prepare(network)
    direction = random_direction(space, origin, seed=0, index=0, perturb_one_dimensional=True)
    assert not direction["linear.weight"][2].any()
    raw = {name: values.copy() for name, values in direction.items()}
    raw["convolution.weight"][4] = 0
    result = normalize(raw.__getitem__, origin, space, "filter", True)
    assert not result["convolution.weight"][4].any()
    assert not result["normalization.bias"].any()  # BatchNorm's bias starts at zero
    assert all(np.isfinite(values).all() for values in result.values())


def test_same_seed_same_bits_other_seed_index_and_name_other_values(network):
    space, origin = prepare(network)

    def draw(seed, index):
        return random_direction(space, origin, seed=seed, index=index, normalization="none")

    first = draw(5, 0)
    np.testing.assert_equal(draw(5, 0), first)
    for other in (draw(5, 1), draw(6, 0)):
        assert abs(inner_product(first, other, space)) < 0.2 * norm(first, space) * norm(other, space)
    same_shape = nn.ModuleDict({"left": nn.Linear(9, 9), "right": nn.Linear(9, 9)})
    pair = random_direction(*prepare(same_shape), seed=0, index=0, normalization="none")
    assert not np.array_equal(pair["left.weight"], pair["right.weight"])


def test_a_tensors_values_do_not_depend_on_the_other_layers():
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(5, 4))
    large = nn.Sequential(small[0], nn.Linear(4, 3))
    one = random_direction(*prepare(small), seed=1, index=0)
    two = random_direction(*prepare(large), seed=1, index=0)
    np.testing.assert_array_equal(one["0.weight"], two["0.weight"])


def test_values_are_standard_normal():
    space, origin = prepare(nn.Linear(300, 300))
    values = random_direction(space, origin, seed=0, index=0, normalization="none")["weight"].astype(float)
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, np.float32), (torch.float16, np.float32), (torch.float64, np.float64)]
)
def test_directions_are_float32_and_float64_for_float64_parameters(dtype, expected):
    network = nn.Linear(12, 5).to(dtype)
    space, origin = prepare(network)
    assert origin.read("weight").dtype == (ml_dtypes.bfloat16 if dtype == torch.bfloat16 else str(dtype)[6:])
    direction = random_direction(space, origin, seed=0, index=0)
    assert direction["weight"].dtype == expected
    norms = np.linalg.norm(direction["weight"].astype(float), axis=1)
    np.testing.assert_allclose(norms, network.weight.detach().double().norm(dim=1).numpy(), rtol=1e-6)


def test_empty_tensors_are_allowed():
    network = nn.Module()
    network.empty = nn.Parameter(torch.zeros(0, 3))
    network.weight = nn.Parameter(torch.ones(2, 3))
    direction = random_direction(*prepare(network), seed=0, index=0)
    assert direction["empty"].shape == (0, 3)
    np.testing.assert_allclose(np.linalg.norm(direction["weight"], axis=1), np.sqrt(3), rtol=1e-6)


@pytest.mark.parametrize("block", [1, 13, 2**20])
def test_inner_products_and_norms_are_those_of_flat_vectors(network, block, monkeypatch):
    monkeypatch.setattr(directions_module, "_BLOCK", block)
    space, origin = prepare(network)
    first = random_direction(space, origin, seed=0, index=0)
    second = random_direction(space, origin, seed=0, index=1)
    flat = [np.concatenate([d[t.name].reshape(-1).astype(float) for t in space.trainable]) for d in (first, second)]
    assert inner_product(first, second, space) == pytest.approx(flat[0] @ flat[1], rel=1e-11)
    assert norm(first, space) == pytest.approx(np.linalg.norm(flat[0]), rel=1e-13)


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
    return random_direction(*prepare(network), seed=0, index=0, **options)


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
