import hashlib

import numpy as np
import pytest
import torch
from runs import SmallNetwork, TiedNetwork, raw_bytes, seeded
from torch import nn

from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network, is_network, read_network, repeated_reader
from collectors.networks.torch_network import to_array, to_tensor, unwrap
from collectors.networks.weight_space import TensorInfo, WeightSpace, canonical_name, direction_dtype, state_sha256

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("layer.weight", "layer.weight"),
        ("module.layer.weight", "layer.weight"),
        ("module.module.weight", "weight"),
        ("_orig_mod.layer.weight", "layer.weight"),
        ("module._orig_mod.layer.weight", "layer.weight"),
        ("_orig_mod.module.layer.weight", "layer.weight"),
        ("blocks.0._orig_mod.weight", "blocks.0.weight"),
        ("layer.module.weight", "layer.module.weight"),
        ("my_orig_mod.weight", "my_orig_mod.weight"),
        ("module", "module"),
    ],
)
def test_canonical_names(name, canonical):
    assert canonical_name(name) == canonical


def test_description_of_a_network():
    network = SmallNetwork()
    network[0].weight.requires_grad_(False)
    space = describe_network(network)
    assert (space.framework, space.network) == ("torch", "SmallNetwork")
    assert [tensor.name for tensor in space.parameters] == [name for name, _ in network.named_parameters()]
    assert {tensor.name for tensor in space.buffers} == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert "0.weight" not in {tensor.name for tensor in space.trainable}
    assert space.dimension == sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert set(read_network(network)) == set(network.state_dict())


def test_extra_states_are_no_weights():
    class Scaled(nn.Linear):
        def get_extra_state(self):
            return {"amax": 1}

        def set_extra_state(self, state):
            pass

    network = nn.Sequential(Scaled(2, 3), nn.Linear(3, 1))
    with pytest.warns(UserWarning, match=r"network holds more than weights; left out: '0._extra_state', which layers"):
        space = describe_network(nn.DataParallel(network))
    assert {tensor.name for tensor in space.tensors} == set(network.state_dict()) - {"0._extra_state"}


def test_tied_weights_are_one_tensor_with_an_alias():
    network = TiedNetwork()
    space = describe_network(network)
    embedding = next(tensor for tensor in space.tensors if tensor.name == "embedding.weight")
    assert embedding.aliases == ("head.weight",)
    assert space.dimension == sum(p.numel() for p in network.parameters())
    state = read_network(network)
    assert "head.weight" not in state
    assert "mask" not in state


def test_weights_tied_by_storage_alone_are_found_and_empty_tensors_are_not_taken_for_tied():
    network = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    network[1].weight = nn.Parameter(network[0].weight.detach())
    assert [(t.name, t.aliases) for t in describe_network(network).tensors] == [("0.weight", ("1.weight",))]
    network = with_parameters(a=torch.empty(0, 3), b=torch.empty(0, 3))
    assert [tensor.name for tensor in describe_network(network).tensors] == ["a", "b"]


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda network: torch.compile(network, backend="eager")])
def test_wrappers_leave_no_trace(wrap):
    network = SmallNetwork()
    wrapped = wrap(network)
    assert unwrap(wrapped) is network
    assert describe_network(wrapped) == describe_network(network)
    assert read_network(wrapped).keys() == read_network(network).keys()


def test_a_compiled_part_keeps_its_name():
    network = SmallNetwork()
    names = [tensor.name for tensor in describe_network(network).tensors]
    network[0] = torch.compile(network[0], backend="eager")
    assert [tensor.name for tensor in describe_network(network).tensors] == names


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (2, 3, 4)], ids=str)
def test_values_are_kept_bit_for_bit(dtype, shape):
    tensor = seeded(lambda: torch.randn(shape)).mul(3).to(dtype)
    array = to_array(tensor)
    assert array.dtype.name == str(dtype).removeprefix("torch.")
    assert array.shape == shape
    assert array.tobytes() == raw_bytes(tensor)
    back = to_tensor(array)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert raw_bytes(back) == raw_bytes(tensor)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.transpose(0, 1),
        lambda t: t[:, ::2],
        lambda t: t[:1].expand(4, -1, -1, -1),
        lambda t: torch.complex(t, t).conj().imag,
    ],
)
def test_any_memory_layout_is_read_in_c_order(view):
    tensor = view(torch.randn(2, 4, 3, 5))
    assert np.array_equal(to_array(tensor), np.array(tensor.tolist(), np.float32))


def test_what_was_read_is_a_copy():
    network = SmallNetwork()
    state = read_network(network)
    before = {name: array.copy() for name, array in state.items()}
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.add_(1)
    assert all(np.array_equal(state[name], before[name]) for name in state)


def with_parameters(**parameters):
    network = nn.Module()
    for name, parameter in parameters.items():
        setattr(network, name, nn.Parameter(parameter))
    return network


def slices():
    network = nn.Sequential(nn.Linear(4, 6), nn.Linear(4, 3))
    network[1].weight = nn.Parameter(network[0].weight.detach()[3:])
    return network


def names_that_meet():
    network = with_parameters(weight=torch.ones(2))
    network.module = with_parameters(weight=torch.ones(3))
    return network


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda: nn.LazyLinear(3), TypeError, "network's 'weight' has no shape yet .* run one batch"),
        (lambda: nn.Linear(2, 2, device="meta"), TypeError, "network's 'weight' is on the meta device"),
        (lambda: {"weight": torch.ones(2)}, TypeError, "network must be a network of a supported .* but got dict"),
        (lambda: nn.Linear, TypeError, "network must be a network of a supported .* but got type"),
        (slices, TypeError, r"'0\.weight' and '1\.weight' share a part of their memory.*clone\(\)"),
        (lambda: with_parameters(weight=torch.eye(3).to_sparse()), TypeError, "network's 'weight' is sparse"),
        (names_that_meet, ValueError, "two tensors that are both called 'weight'"),
    ],
)
def test_networks_that_cannot_be_read(build, error, match):
    network = build()
    with pytest.raises(error, match=match):
        describe_network(network)


def test_a_buffer_that_is_a_part_of_a_weight_is_refused():
    network = nn.Linear(4, 6)
    network.register_buffer("first_rows", network.weight.detach()[:2])
    with pytest.raises(TypeError, match=r"'weight' and 'first_rows' share a part .*register_buffer\(name, buffer\.d"):
        describe_network(network)
    network.weight.requires_grad_(False)
    assert len(describe_network(network).tensors) == 3


@pytest.mark.parametrize(
    "shared",
    [
        lambda: torch.zeros(1).expand(8),
        lambda: torch.zeros(2, 9)[:, :1].expand(2, 4),
        lambda: torch.zeros(9).unfold(0, 8, 1),
    ],
    ids=["expanded", "expanded in wide rows", "windows"],
)
def test_trainable_parameters_whose_elements_share_memory_are_refused(shared):
    network = nn.Sequential(nn.Linear(8, 8))
    network[0].bias = nn.Parameter(shared())
    with pytest.raises(TypeError, match=r"network's '0\.bias' has elements that share memory.*detach\(\)\.clone\(\)"):
        describe_network(network)
    # What nothing moves can be read as it is.
    network[0].bias.requires_grad_(False)
    assert read_network(network)["0.bias"].shape == network[0].bias.shape
    network[0].bias = nn.Parameter(network[0].bias.detach().clone())
    describe_network(network)


@pytest.mark.parametrize(
    "layout",
    [
        lambda: torch.zeros(4, 6).t(),
        lambda: torch.zeros(9)[::3],
        lambda: torch.zeros(1).expand(1, 1),
        lambda: torch.zeros(3, 0).expand(3, 0),
    ],
    ids=["transposed", "steps", "one element", "empty"],
)
def test_parameters_of_any_layout_are_described_if_each_element_has_its_place(layout):
    network = with_parameters(weight=layout())
    assert describe_network(network).trainable[0].shape == tuple(network.weight.shape)


def test_what_is_a_network():
    assert is_network(nn.Linear(1, 1))
    assert not is_network(nn.Linear)
    assert not is_network(None)


def space(*tensors, network="Net"):
    return WeightSpace("torch", network, tensors)


def test_check_state_lists_every_problem():
    ours = space(
        TensorInfo("a", (2, 3), "float32", "parameter", True),
        TensorInfo("b", (4,), "float32", "parameter", True),
        TensorInfo("c", (5,), "float32", "buffer"),
    )
    with pytest.raises(CheckpointError) as raised:
        ours.check_state("the file", {"a": (3, 2), "b": (4,), "d": (6,)})
    assert str(raised.value).splitlines() == [
        "the file does not fit the network Net:",
        "  a: the network has (2, 3), found (3, 2)",
        "  c (5,): missing",
        "  d (6,): unknown",
        "Use the network that was trained, or the run directory of this network.",
    ]


def test_check_state_lists_forty_problems_at_most():
    with pytest.raises(CheckpointError, match=r"and 60 more") as raised:
        space().check_state("the file", {f"x{index}": (1,) for index in range(100)})
    assert len(str(raised.value).splitlines()) == 43


def test_an_alias_stands_for_its_tensor():
    ours = space(TensorInfo("a", (2,), "float32", "parameter", True, aliases=("b", "c")))
    assert ours.check_state("it", {"b": (2,)}) == {"a": "b"}
    assert ours.check_state("it", {"a": (2,), "b": (2,), "c": (2,)}) == {"a": "a"}


def test_differences_of_two_networks():
    one = describe_network(SmallNetwork())
    assert one.differences(describe_network(SmallNetwork())) == []
    lines = one.differences(describe_network(nn.Linear(3, 5)))
    assert lines[0] == "class SmallNetwork against Linear"
    assert any(line.startswith("0.weight: {") and line.endswith("against absent") for line in lines)
    swapped = WeightSpace(one.framework, one.network, one.tensors[::-1])
    assert one.differences(swapped) == ["the same tensors in another order"]


def test_sha256_of_a_state():
    state = {"b": np.ones((2, 3)), "a": np.zeros(())}
    digest = state_sha256(state)
    assert digest == state_sha256(dict(reversed(state.items())))
    expected = hashlib.sha256(b"a|float64|()|" + bytes(8) + b"b|float64|(2, 3)|" + np.ones(6).tobytes())
    assert digest == expected.hexdigest()
    others = [{**state, "a": np.ones(())}, {**state, "b": np.ones((3, 2))}, {"b": state["b"], "c": state["a"]}]
    others.append({**state, "b": np.ones((2, 3), np.float32)})
    assert digest not in map(state_sha256, others)


def test_points_are_computed_in_single_precision_at_least():
    kinds = ("float64", "float32", "float16", "bfloat16")
    assert [direction_dtype(name).name for name in kinds] == ["float64", "float32", "float32", "float32"]


class TestRepeatedReader:
    @pytest.fixture
    def network(self):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def same(self, reader, network):
        found, expected = reader(), read_network(network)
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            assert found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()

    def test_a_mapping_that_is_kept_keeps_its_values(self, network):
        reader = repeated_reader(network)
        kept = [reader() for _ in range(3)]
        before = [{name: array.copy() for name, array in state.items()} for state in kept]
        with torch.no_grad():
            network[0].weight.add_(1)
        changed = reader()
        assert not np.array_equal(changed["0.weight"], kept[0]["0.weight"])
        for state, copies in zip(kept, before, strict=True):
            for name, array in state.items():
                np.testing.assert_array_equal(array, copies[name])

    def test_memory_is_used_again(self, network):
        reader = repeated_reader(network)
        place = reader()["0.weight"].ctypes.data
        assert reader()["0.weight"].ctypes.data == place

    @pytest.mark.parametrize(
        "change",
        [
            lambda network: network[0].weight.data.add_(1),
            lambda network: network[1].num_batches_tracked.add_(1),
            lambda network: setattr(network[0], "weight", nn.Parameter(torch.ones(4, 3))),
            lambda network: setattr(network[0].weight, "data", torch.ones(4, 3)),
            lambda network: setattr(network[0].weight, "data", network[0].weight.data.view(3, 4)),
            lambda network: setattr(network[2], "weight", nn.Parameter(torch.ones(4, 4).T[:2])),
            lambda network: setattr(network[1], "running_mean", torch.ones(4)),
            lambda network: network[1].register_buffer("running_mean", network[1].running_mean, persistent=False),
            lambda network: network.append(nn.Linear(2, 2)),
            lambda network: network.pop(2),
            lambda network: network.half(),
            lambda network: network.bfloat16(),
            lambda network: network.requires_grad_(False),
            lambda network: setattr(network[2], "bias", None),
            lambda network: setattr(network, "more", network[0]),
            lambda network: setattr(network, "tied", nn.ParameterList([network[0].weight])),
        ],
    )
    def test_a_network_that_changes(self, network, change):
        reader = repeated_reader(network)
        self.same(reader, network)
        change(network)
        self.same(reader, network)

    def test_a_tensor_that_can_no_longer_be_read(self, network):
        reader = repeated_reader(network)
        reader()
        with pytest.raises(TypeError, match="meta device"):
            network.to("meta") and reader()

    def test_other_frameworks_have_their_own_reader(self):
        with pytest.raises(TypeError, match="network must be a network of a supported framework"):
            repeated_reader([1, 2])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("read", [describe_network, read_network, lambda network: repeated_reader(network)()])
def test_programs_of_torchscript_are_refused(read):
    network = nn.Sequential(nn.Linear(3, 2))
    for program in (torch.jit.script(network), torch.jit.trace(network, torch.ones(1, 3))):
        for whole in (program, nn.DataParallel(program)):
            with pytest.raises(TypeError, match=r"network is a program of TorchScript .*load_state_dict\(program"):
                read(whole)
        with pytest.raises(TypeError, match="network's '1' is a program of TorchScript"):
            read(nn.Sequential(nn.ReLU(), program))
