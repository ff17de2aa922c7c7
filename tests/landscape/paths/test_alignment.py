"""``align``: permutations undone exactly, outputs kept, barriers lowered, and everything that can go wrong."""

import copy

import numpy as np
import pytest
import torch
from digits_training import LeNet5, ResNet20, Transformer, digits
from marked_cases import marked
from permutable_networks import NETWORKS, with_own_statistics
from torch import nn

from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape import MeasurementPlan, line_between
from landscape.errors import AlignmentError
from landscape.functions import barrier
from landscape.paths.alignment import align
from landscape.paths.axis_labels import AxisLabels, NoCommonPartsError
from landscape.paths.graph_symmetries import OutputCheck, find_groups
from landscape.paths.matching import permuted

SAMPLES = 1024
OPTIONS = {"progress": False, "plan": MeasurementPlan(batch_size=256, threads=1), "device_ids": [0]}


class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(1024, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 10))


def train(build, seed, steps, batch=64):
    images, targets = digits(build)
    torch.manual_seed(seed)
    network = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    order, rows = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        rows = rows or list(torch.randperm(SAMPLES, generator=order).split(batch))
        some = rows.pop(0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images[some]), targets[some]).backward()
        optimizer.step()
    return network.eval()


def loaded(build, weights):
    network = build()
    network.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in weights.items()})
    return network.eval()


@pytest.mark.parametrize(
    ("build", "steps", "sizes", "batch"),
    [
        (Perceptron, 16, [24, 32], 64),
        pytest.param(LeNet5, 24, [6, 16, 84, 120], 64, marks=pytest.mark.slow),
        # Its residual stream of 64, two hidden layers of 128, and in each layer 4 heads of 16.
        pytest.param(Transformer, 48, [4, 4, 16, 16, 64, 128, 128], 64, marks=pytest.mark.slow),
        # The inner channels of its nine blocks; its stream is fixed, because shortcuts fill up with channels of zeros.
        pytest.param(ResNet20, 4, [16, 16, 16, 32, 32, 32, 64, 64, 64], 32, marks=pytest.mark.slow),
    ],
)
def test_undone_to_the_bit(build, steps, sizes, batch):
    """A random permutation of every group of a trained network is undone, buffers included."""
    network = train(build, 0, steps, batch)
    images = digits(build)[0][:8]
    state, other = read_network(network), read_network(train(build, 1, 2, batch))
    groups = align(other, to=network, example=images).groups
    assert sorted(group.size for group in groups) == sizes
    rng = np.random.default_rng(1)
    shuffled = permuted(state, [group.permuted_by(rng.permuted(group.permutation, axis=-1)) for group in groups])
    with torch.no_grad():
        outputs, permuted_outputs = network(images), loaded(build, shuffled)(images)
    torch.testing.assert_close(permuted_outputs, outputs, rtol=0, atol=1e-5 * float(outputs.abs().max()))
    found = align(shuffled, to=network, example=images)
    assert found.distance_before > 0.5 * np.sqrt(sum((array**2).sum() for array in state.values() if array.ndim > 1))
    assert found.distance_after == 0
    assert found.verified <= 1e-6
    np.testing.assert_equal(found.weights, state)


@pytest.mark.parametrize("name", marked(NETWORKS, pytest.mark.slow, after=6))
def test_groups_of_many_kinds_of_networks_change_no_outputs_and_are_undone(name):
    """Whole groups change places, and inside each their channels, in every group in another way."""
    build, inputs, shapes, unknown = NETWORKS[name]
    torch.manual_seed(0)
    network, example = with_own_statistics(build()), inputs()
    space, state = describe_network(network), read_network(network)
    check = OutputCheck(network, example, state)
    groups, not_known = find_groups(check.network, check.example, space)
    assert sorted(group.permutation.shape for group in groups) == shapes, [str(group) for group in groups]
    assert not_known == unknown
    for group in groups:
        order = np.roll(group.permutation, 1, -1)
        assert check.difference(permuted(state, [group.permuted_by(order)])) < 1e-11, str(group)
        # The check itself sees when one axis does not follow.
        for axis in group.axes:
            if not axis.name.endswith(".bias"):
                partly = axis.permute(state[axis.name], order)
                assert check.difference({**state, axis.name: partly}) > 1e-7, str(axis)
    rng = np.random.default_rng(0)
    planted = permuted(state, [group.permuted_by(rng.permuted(group.permutation, axis=-1)) for group in groups])
    assert check.difference(planted) < 1e-11
    found = align(planted, to=network, example=example)
    assert [str(group) for group in found.groups] == [str(group) for group in groups]
    assert found.distance_before > 0
    assert found.distance_after == 0
    np.testing.assert_equal(found.weights, state)


@pytest.mark.parametrize("transposed", [False, True])
def test_parameters_that_are_others_in_the_same_memory(transposed):
    """A head in the memory of an embedding; its copies lie there too, in float32 and in float64."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.hidden = nn.Embedding(7, 4), nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
            weight = self.words.weight.data
            self.head = nn.Parameter(weight.t() if transposed else weight)

        def forward(self, words):
            inputs = self.hidden(self.words(words))
            return inputs @ (self.head if transposed else self.head.t())

    torch.manual_seed(0)
    a, b = Tied(), Tied()
    found = align(b, to=a, example=torch.arange(7)[None])
    assert 5 in [group.size for group in found.groups]
    assert found.verified <= 1e-6


def test_channels_of_group_normalization_stay_in_their_group():
    """An order that takes a channel to another group changes the outputs, and is not undone."""
    torch.manual_seed(0)
    a = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
    across = np.array([2, 1, 0, 3, 4, 5])
    planted = dict(read_network(a))
    for key in ("0.weight", "0.bias", "1.weight", "1.bias"):
        planted[key] = planted[key][across]
    planted["4.weight"] = planted["4.weight"].reshape(2, 6, 4)[:, across].reshape(2, 24)
    example = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(loaded(lambda: copy.deepcopy(a), planted)(example), a(example), atol=1e-3)
    found = align(planted, to=a, example=example)
    assert 0 < found.distance_after <= found.distance_before
    assert found.verified <= 1e-6


@pytest.mark.slow
def test_the_barrier_between_two_trainings_of_lenet():
    a, b = (train(LeNet5, seed, 192) for seed in (0, 1))
    images, targets = (part[:SAMPLES] for part in digits(LeNet5))
    found = align(b, to=a, example=images[:16])
    assert found.distance_after < 0.9 * found.distance_before
    before, after = (
        barrier(a, end, lambda: (nn.CrossEntropyLoss(), LeNet5(), (images, targets), {}), 21, **OPTIONS).height
        for end in (b, found.weights)
    )
    assert before > 0.7
    assert after <= 0.35


def small(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 3))


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
OF_UNITS = ("0.weight", "0.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var")
BY_HAND = {**dict.fromkeys(OF_UNITS, 0), "3.weight": 1}


@pytest.fixture
def two():
    a, b = small(0), small(1)
    for network in (a, b):
        network(X)  # statistics of their own
    return a, b


def test_weights_in_any_form(two, tmp_path):
    a, b = two
    expected = align(b, to=a, example=X)
    torch.save(a.state_dict(), tmp_path / "a.pt")
    write_checkpoint(tmp_path / "b.safetensors", read_network(b))
    found = align(tmp_path / "b.safetensors", to=str(tmp_path / "a.pt"), network=small(7).train(), example=X)
    found.save(tmp_path / "aligned.safetensors")
    read = CheckpointFile(tmp_path / "aligned.safetensors")
    np.testing.assert_equal(found.weights, expected.weights)
    np.testing.assert_equal({name: read.read(name) for name in read.shapes}, expected.weights)
    assert line_between(tmp_path / "a.pt", tmp_path / "aligned.safetensors", network=a).dimension == 1
    torch.testing.assert_close(loaded(small, found.weights)(X), b.eval()(X), rtol=0, atol=1e-6)


def test_the_networks_stay_as_they_are(two):
    a, b = two
    before = [copy.deepcopy(network.state_dict()) for network in two]
    align(b, to=a, example=X)
    assert a.training
    assert b.training
    for network, state in zip(two, before, strict=True):
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensor, state[name])


def test_what_is_said(two):
    a, b = two
    found = align(b, to=a, example=X)
    assert repr(found).startswith("Aligned(distance_before=")
    assert "0.weight[0], 0.bias[0], 2.weight[0] and 4 more (6 entries)" in str(found.groups[0])
    assert found.summary().startswith("1 group of units, of which 1 was permuted\ndistance ")
    (group,) = found.groups
    np.testing.assert_array_equal(found.weights["0.weight"], b[0].weight.detach()[group.permutation])
    differences = (found.weights[name] - item.detach().numpy() for name, item in a.named_parameters())
    assert found.distance_after == pytest.approx(np.sqrt(sum(float((item**2).sum()) for item in differences)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(dtype):
    a, b = small(0).to(dtype), small(1).to(dtype)
    found = align(b, to=a, example=X)
    assert found.distance_after < found.distance_before
    assert {array.dtype.name for array in found.weights.values()} == {str(dtype).removeprefix("torch."), "int64"}


class Turning(nn.Module):
    """Pairs of inputs are turned as complex numbers, by angles in a complex buffer."""

    def __init__(self, seed):
        super().__init__()
        self.layers = small(seed)
        self.register_buffer("turns", torch.polar(torch.ones(2), torch.tensor([0.5, 2.0])))

    def forward(self, inputs):
        pairs = torch.view_as_complex(inputs.reshape(-1, 2, 2).float()) * self.turns
        return self.layers(torch.view_as_real(pairs).reshape(-1, 4).to(inputs))


def test_a_complex_buffer_stays_complex_where_weights_are_narrow():
    a, b = Turning(0), Turning(1)
    for network in (a, b):
        network.layers.bfloat16()
    found = align(b, to=a, example=X)
    assert found.weights["turns"].dtype == np.complex64
    assert [group.size for group in found.groups] == [6]
    check = OutputCheck(b, X, read_network(b))
    assert check.in_float64()
    real = {**read_network(b), "turns": read_network(b)["turns"].real.astype(np.complex64)}
    assert check.difference(real) > 0.1


def test_what_is_frozen_is_not_permuted():
    a, b = small(0), small(1)
    for network in (a, b):
        network[0].requires_grad_(False)
    with pytest.warns(UserWarning, match="Sequential has no units that can be permuted; its weights stay as they are"):
        found = align(b, to=a, example=X)
    assert found.groups == ()
    assert found.distance_after == found.distance_before


class Deciding(nn.Module):
    """Which way it goes depends on a value, which no graph holds."""

    def __init__(self, seed=0):
        super().__init__()
        self.layers = small(seed)

    def forward(self, inputs):
        return self.layers(inputs) if float(inputs.sum()) > 1e9 else self.layers(2 * inputs)


def test_groups_by_hand_where_the_graph_cannot_be_read():
    a, b = Deciding(0), Deciding(1)
    with pytest.raises(AlignmentError, match=r"torch\.export cannot read the graph of Deciding.*Say by hand.*groups="):
        align(b, to=a, example=X)
    found = align(b, to=a, example=X, groups=[{f"layers.{name}": axis for name, axis in BY_HAND.items()}])
    expected = align(b.layers, to=a.layers, example=X)
    np.testing.assert_equal(found.weights, {f"layers.{name}": array for name, array in expected.weights.items()})


def test_a_flattened_axis_by_hand():
    a, b = LeNet5(), LeNet5()
    images = digits(LeNet5)[0][:2]
    hand = {"3.weight": 0, "3.bias": 0, "7.weight": (1, 1, 25)}
    found = align(b, to=a, example=images, groups=[hand])
    assert found.groups[0].size == 16
    assert found.groups[0].moved > 0
    assert found.verified <= 1e-6


def test_wrong_groups_are_dropped_and_named(two):
    a, b = two
    deep = nn.Sequential(small(0), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    other = nn.Sequential(small(1), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    right = {f"0.{name}": axis for name, axis in BY_HAND.items()}
    text = r"left alone, because the network's outputs changed.*1\.weight\[0\] \(5 entries\)"
    with pytest.warns(UserWarning, match=text):
        found = align(other, to=deep, example=X, groups=[right, {"1.weight": 0}])
    assert [group.size for group in found.groups] == [6]
    assert [str(group) for group in found.dropped] == ["1.weight[0] (5 entries)"]
    assert found.verified <= 1e-6
    assert "left alone, because outputs changed: 1.weight[0] (5 entries)" in found.summary()
    text = r"permuting the units of Sequential changes its outputs by .* Wrong are: 0\."
    with pytest.raises(AlignmentError, match=text):
        align(b, to=a, example=X, groups=[{"0.weight": 0}])


def test_an_example_of_zeros_hides_no_mistake(two):
    """With inputs of zero the first weights do not matter at all."""
    a, b = two
    with pytest.raises(AlignmentError, match="changes its outputs"):
        align(b, to=a, example=torch.zeros(2, 4), groups=[{"0.weight": 0}])


class Forked(nn.Module):
    """Two inputs, and a layer that only some calls reach."""

    def __init__(self, seed=0):
        super().__init__()
        self.layers, self.extra = small(seed), nn.Linear(6, 3)

    def forward(self, inputs, shift, further=None):
        outputs = self.layers(inputs + shift)
        return outputs if further is None else outputs + self.extra(further)


def test_inputs_in_any_form():
    a, b = Forked(0), Forked(1)
    expected = align(b, to=a, example=(X, 2 * X))
    assert {axis.name for group in expected.groups for axis in group.axes} == {f"layers.{name}" for name in BY_HAND}
    for example in ([X, 2 * X], {"shift": 2 * X, "inputs": X}, (X.double().numpy(), 2 * X.numpy())):
        found = align(b, to=a, example=example)
        np.testing.assert_equal(found.weights, expected.weights)


def test_arguments(two):
    a, b = two
    same = copy.deepcopy(a)
    wider = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.BatchNorm1d(7), nn.Linear(7, 3)).state_dict()
    broken = {**b.state_dict(), "0.weight": torch.full((6, 4), float("nan"))}
    for one, other, example, error, text in (
        (same, a, X, AlignmentError, "the two networks hold equal weights, so that there is nothing to align"),
        (wider, a, X, CheckpointError, r"b does not fit the network Sequential(.|\n)*0\.weight"),
        (broken, a, X, CheckpointError, r"b holds NaN or infinite values in '0\.weight'"),
        (b.state_dict(), a.state_dict(), X, TypeError, "network must be the PyTorch network itself"),
        (b, a, None, TypeError, "example is missing: inputs of the network"),
        (b, a, torch.zeros(2, 9), AlignmentError, "Sequential cannot be run on the example: RuntimeError: .*Give exam"),
    ):
        with pytest.raises(error, match=text):
            align(one, to=other, example=example)
    for groups, error, text in (
        ({"0.weight": 0}, TypeError, "groups must be a list of groups"),
        ([["0.weight"]], TypeError, r"groups\[0\] must be a mapping"),
        ([{"nowhere": 0}], ValueError, r"groups\[0\] names 'nowhere', which is no parameter or buffer of Sequential"),
        ([{"0.weight": "rows"}], TypeError, r"groups\[0\]\['0.weight'\] must be an axis such as 0"),
        ([{"0.weight": 2}], ValueError, r"groups\[0\]\['0.weight'\] must be an axis of 2"),
        ([{"0.weight": (0, 1, 4)}], ValueError, r"must be an axis that 4 parts divide"),
        ([{"0.weight": 0, "3.weight": 0}], ValueError, r"must hold axes of one length, but got 0.weight\[0\]: 6"),
        ([{"0.weight": 0}, {"0.weight": 0}], ValueError, r"groups\[1\] and groups\[0\] both hold 0.weight\[0\]"),
    ):
        with pytest.raises(error, match=text):
            align(b, to=a, example=X, groups=groups)
    with pytest.raises(ValueError, match="path must be a file on this machine"):
        align(b, to=a, example=X).save("s3://bucket/aligned.safetensors")


def test_labels_that_do_not_fit_are_fixed():
    labels = AxisLabels()
    one = [*labels.new_axis(2), *labels.new_axis(3)]
    other = [*labels.new_axis(3), *labels.new_axis(2)]
    labels.join(one, other)
    assert not any(labels.is_free(label) for axis in (one, other) for label in labels.labels(axis))
    with pytest.raises(NoCommonPartsError):
        labels.divide([labels.new_axis(6)], (4, 2))
