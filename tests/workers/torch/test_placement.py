"""Networks that are spread over devices: they stay where callback_fn put them; and devices without float64."""

import functools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from twin_device import checks_of, failures_with_twins
from worker_cases import classifier, labelled, mlp

from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.samples.batches import float64_device, in_float64
from workers.torch.placement import find_placement, full_device

LABELLED = labelled()
# Those without float64 stand in for Apple GPUs: the values are those of the CPU.
CASES = {
    "spread": Path(__file__).with_name("spread_cases.py"),
    "without float64": Path(__file__).with_name("float64_cases.py"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """Returns what went wrong in a process that has two devices, by check of a file."""
    return functools.cache(
        lambda name: failures_with_twins(tmp_path_factory, CASES[name], float64=name != "without float64")
    )


def spread_over(*devices):
    """Returns parameters on each device, whether this machine has it or not: there is nothing on it."""
    if 0 < torch.cuda.device_count() < 3:
        pytest.skip("PyTorch touches a GPU even where nothing is put on it, and this machine has fewer than three")
    with FakeTensorMode():
        return nn.ParameterList(torch.empty(2, device=device) for device in devices)


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a busy machine the compiler takes minutes, as do all checks together
@pytest.mark.room("landscape")
@pytest.mark.parametrize(("name", "check"), [(name, check) for name in CASES for check in checks_of(CASES[name])])
def test_on_two_devices(name, check, failures):
    assert check not in failures(name), failures(name)[check]


@pytest.mark.parametrize(
    ("devices", "expected", "kept"),
    [
        (["cpu", "cpu"], ["cpu"], False),
        (["cuda:1", "cuda:1"], ["cpu"], False),
        (["cuda:0", "cuda:1"], ["cuda:0", "cuda:1"], True),
        (["cuda:1", "cuda:0", "cuda:1"], ["cuda:1", "cuda:0"], True),
        (["cpu", "cuda:0"], ["cpu", "cuda:0"], True),
    ],
)
def test_several_devices_are_kept_and_batches_go_to_the_first(devices, expected, kept):
    placement = find_placement(spread_over(*devices), "cpu")
    assert placement.is_kept == kept
    assert placement.devices == tuple(map(torch.device, expected))
    assert placement.inputs == torch.device(expected[0])


@pytest.mark.parametrize(
    ("available", "named"), [(["cuda:0"], "cuda:0 only"), (["cuda:0", "cuda:1"], "cuda:0, cuda:1 only")]
)
def test_devices_that_a_worker_does_not_have(available, named):
    network = spread_over("cuda:0", "cpu", "cuda:2")
    text = rf"spread over cuda:0, cpu, cuda:2, but this worker has {named}\. .* devices_per_worker=2"
    with pytest.raises(CallbackFunctionError, match=text):
        make_evaluator(
            (nn.MSELoss(), network, LABELLED, {}), MeasurementSetup(device="cuda:0", devices=tuple(available))
        )
    assert find_placement(network, "cuda:0", ["cuda:0", "cuda:2"]).is_kept


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a PyTorch without CUDA")
def test_a_gpu_that_this_pytorch_cannot_use():
    """The driver has a GPU, and nobody has asked which build of PyTorch is there."""
    with pytest.warns(UserWarning, match=r"built without CUDA, so the network is measured on the CPU\. Install"):
        evaluator = make_evaluator((nn.CrossEntropyLoss(), mlp(), LABELLED, {}), MeasurementSetup(device="cuda:0"))
    evaluator.close()
    assert evaluator.description.device == "cpu"
    assert any("built without CUDA" in note for note in evaluator.description.notes)


def test_a_network_and_a_buffer_without_values():
    network, with_buffer = mlp(), mlp()
    network[2].to("meta")
    with_buffer.register_buffer("scale", torch.ones(1, device="meta"), persistent=False)
    with pytest.raises(TypeError, match=r"'2\.weight' is on the meta device and has no values; load the weights first"):
        classifier(network)
    with pytest.raises(TypeError, match="'scale' is on the meta device and has no values"):
        classifier(with_buffer)


class Replacing(nn.Module):
    """Casts its weights for each forward pass, as hooks of some libraries do."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, inputs):
        self.inner[0].weight.data = self.inner[0].weight.data.clone()
        return self.inner(inputs)


def test_a_network_that_replaces_its_weights():
    text = r"replaces its weights while it computes \('inner\.0\.weight' and 0"
    with pytest.raises(CallbackFunctionError, match=text):
        classifier(Replacing())


def test_sums_stay_where_they_are_on_cpus_and_nvidia_gpus():
    for name in ("cpu", "cuda:3"):
        device = torch.device(name)
        assert float64_device(device) == device
    values = torch.ones(3, dtype=torch.float64)
    assert in_float64(values) is values


def test_an_apple_gpu_has_its_number():
    """The parameters on it say "mps:0", with which it is compared."""
    assert full_device("mps") == torch.device("mps:0")
