import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import MemoryState
from landscape.planes import directions as directions_module
from landscape.planes.directions import inner_product, norm, normalize, random_direction


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


@pytest.mark.parametrize("normalization", ["filter", "layer", "weight", "none"])
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


@pytest.mark.parametrize("normalization", ["filter", "layer", "weight", "none"])
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
