"""What test_placement.py checks in processes with two devices of their own, each function in one."""

import copy
import gc

import numpy as np
import pytest
import torch
import torchmetrics
from examples import accuracy
from measured_planes import measure_plane
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, StackDataset, TensorDataset
from twin_device import twin_memory
from worker_cases import classes, images, plane_of, seeded

from collectors.networks.torch_readers import RepeatedReader
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload

POINTS = np.random.default_rng(0).uniform(-1, 1, (5, 2))
PLAN = MeasurementPlan(16)
FIRST, SECOND, HOST = "twin:0", "twin:1", "cpu"
DATA = TensorDataset(images(), classes(40, 5))
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.6, 1.5])


class Pipeline(nn.Module):
    """Two parts; each has weights that are moved alone and such that are moved side by side, and normalization."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 700))
        self.back = nn.Sequential(nn.BatchNorm1d(700), nn.Tanh(), nn.Linear(700, 100), nn.Linear(100, 5)).to(dtype)
        self.back[2].bias.requires_grad_(False)

    def forward(self, images):
        hidden = self.front(images)
        back = self.back[2].weight
        return self.back(hidden.to(back.device, back.dtype))


def spread(network, *devices):
    network = copy.deepcopy(network)
    for part, device in zip((network.front, network.back), devices, strict=True):
        part.to(device)
    return network


def metrics():
    return {"accuracy": accuracy, "torchmetrics": torchmetrics.classification.MulticlassAccuracy(5, average="micro")}


def measured(network, plane, loss=None, device=FIRST, state=None, data=DATA, plan=PLAN, **setup):
    loss = loss or nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    given = MeasurementSetup(device=device, plan=plan, **setup)
    evaluator = make_evaluator((loss, network, data, metrics()), given)
    try:
        evaluator.load(*plane, far_points=[(1.0, 1.0)])
        places = [tensor.device for tensor in (*network.parameters(), *network.buffers())]
        values = evaluator.measure(POINTS)
        single = evaluator.measure_state(*state) if state else {}
        assert [tensor.device for tensor in (*network.parameters(), *network.buffers())] == places
        return values, single, evaluator.description
    finally:
        evaluator.close()


def on_the_host(build=Pipeline, **setup):
    """Returns a network and a plane of it, and what is measured of both on the host."""
    network = seeded(build)
    plane = plane_of(network, scale=0.1)
    return network, plane, measured(network, plane, device=HOST, **setup)[0]


def assert_equal(found, expected, rtol=1e-6):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, atol=1e-7, err_msg=name)


def check_equal_to_the_network_on_the_host():
    for dtype in (torch.float32, torch.bfloat16):
        network = seeded(lambda dtype=dtype: Pipeline(dtype))
        plane = plane_of(network, scale=0.1, origin_seed=5)
        state = (plane_of(network, origin_seed=7)[0], None)
        expected, expected_state, described = measured(network, plane, device=HOST, state=state)
        assert described.device == "cpu"
        for devices in ((FIRST, SECOND), (SECOND, FIRST)):
            found, found_state, description = measured(spread(network, *devices), plane, state=state)
            assert_equal(found, expected)
            assert_equal(found_state, expected_state)
            assert description.space == described.space
            assert description.samples_sha256 == described.samples_sha256
            assert description.device == "twin"
            assert description.partition_dependent is False
            assert "loss_stderr" in found


def check_partly_on_the_host_and_all_of_it_on_another_device():
    network, plane, expected = on_the_host()
    for *devices, of_worker, kinds in (
        (HOST, FIRST, (FIRST, SECOND), "cpu+twin"),
        (SECOND, HOST, (FIRST, SECOND), "cpu+twin"),
        (SECOND, SECOND, (FIRST,), "twin"),
    ):
        there = spread(network, *devices)
        found, _, description = measured(there, plane, devices=of_worker)
        assert_equal(found, expected)
        assert description.device == kinds
    assert {parameter.device for parameter in there.parameters()} == {torch.device(SECOND)}


def check_tuned_and_compiled():
    network, plane, expected = on_the_host()
    with pytest.warns(UserWarning, match="runs eagerly: it is spread over devices"):
        found, _, description = measured(
            spread(network, FIRST, SECOND), plane, plan=None, threads=2, workload=Workload(True, 100)
        )
    assert_equal(found, expected, rtol=1e-5)
    assert description.plan.compile is False
    assert description.plan.batch_size is not None
    found, _, description = measured(spread(network, FIRST, SECOND), plane, plan=None, workload=Workload("auto", 1e9))
    assert_equal(found, expected, rtol=1e-5)
    assert description.plan.reason == "not compiled: it is spread over devices, or hooks of Accelerate run it"


def check_buffers_of_every_policy():
    network, plane, fixed = on_the_host()
    ends = [{name: value + 1 for name, value in plane[2].items() if "running" in name} for _ in range(2)]
    for policy, further in (("recalibrate", ()), ("interpolate", (ends,))):
        options = MeasurementOptions(buffers=policy)
        expected, _, _ = measured(network, (*plane, *further), device=HOST, options=options)
        found, _, _ = measured(spread(network, FIRST, SECOND), (*plane, *further), options=options)
        assert_equal(found, expected, rtol=1e-5)
        assert abs(fixed["loss"] - expected["loss"]).max() > 1e-3


class Penalized(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.register_buffer("strength", torch.tensor(0.01))

    def forward(self, outputs, targets):
        penalty = sum(parameter.cpu().square().sum() for parameter in self.network.parameters())
        return nn.functional.cross_entropy(outputs, targets) + (self.strength.cpu() * penalty).to(outputs.device)


def check_a_loss_that_holds_the_network():
    network = seeded(Pipeline)
    plane = plane_of(network, scale=0.1)
    expected, _, _ = measured(network, plane, Penalized(network), device=HOST)
    moved = spread(network, FIRST, SECOND)
    found, _, _ = measured(moved, plane, Penalized(moved))
    assert_equal(found, expected)


class OwnLossPipeline(Pipeline):
    def forward(self, images, labels):
        logits = super().forward(images)
        return {"loss": nn.functional.cross_entropy(logits, labels.to(logits.device)), "logits": logits}


def check_own_loss():
    network = seeded(OwnLossPipeline)
    plane = plane_of(network, scale=0.1)
    loader = DataLoader(StackDataset(images=images(), labels=classes(40, 5)), batch_size=8)

    def run(network, device):
        evaluator = make_evaluator((None, network, loader, {}), MeasurementSetup(device=device, plan=PLAN))
        return measure_plane(evaluator, plane, POINTS)

    assert_equal(run(spread(network, FIRST, SECOND), FIRST), run(network, HOST))


def check_ends_as_it_was():
    network = spread(seeded(Pipeline), FIRST, SECOND).train()
    tensors = [*network.parameters(), *network.buffers()]
    before = [(id(tensor), tensor.data_ptr(), tensor.device, tensor.detach().cpu().clone()) for tensor in tensors]
    measured(network, plane_of(network, scale=0.1, origin_seed=3), options=MeasurementOptions(buffers="recalibrate"))
    after = [*network.parameters(), *network.buffers()]
    for (identity, place, device, values), tensor in zip(before, after, strict=True):
        assert (id(tensor), tensor.data_ptr(), tensor.device) == (identity, place, device)
        assert torch.equal(tensor.detach().cpu(), values)
    assert all(layer.training for layer in network.modules())


def refusal(network, **setup):
    try:
        measured(network, plane_of(network), **setup)
    except CallbackFunctionError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def check_other_devices_than_the_workers_and_no_move_between_the_parts():
    network = spread(seeded(Pipeline), FIRST, SECOND)
    text = refusal(network, devices=(FIRST,))
    assert "is spread over twin:0, twin:1, but this worker has twin:0 only" in text, text
    network.forward = lambda images: network.back(network.front(images))
    text = refusal(network)
    assert "Expected all tensors to be on the same device" in text, text
    assert "its forward must move activations from part to part" in text, text


def check_memory_beside_each_parameter():
    """Origin and directions are on the device of each parameter, and nowhere else."""
    network = spread(seeded(Pipeline), FIRST, SECOND)
    sizes = {}
    for device, part in ((FIRST, network.front), (SECOND, network.back)):
        trained = sum(4 * parameter.numel() for parameter in part.parameters() if parameter.requires_grad)
        small = sum(4 * p.numel() for p in part.parameters() if p.requires_grad and p.numel() <= 1 << 16)
        sizes[device] = 3 * trained + small + sum(buffer.nbytes for buffer in part.buffers())
    evaluator = make_evaluator(
        (nn.CrossEntropyLoss(), network, DATA, {}), MeasurementSetup(device=FIRST, plan=PLAN, restore_network=False)
    )
    plane = plane_of(network)

    def held():
        gc.collect()
        tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
        storages = {(item.device, item.untyped_storage().data_ptr()): item.untyped_storage() for item in tensors}
        return {name: sum(s.nbytes() for (d, _), s in storages.items() if str(d) == name) for name in (FIRST, SECOND)}

    before = held()
    evaluator.load(*plane)
    after = held()
    for device, size in sizes.items():
        assert abs(after[device] - before[device] - size) <= 64, (device, after[device] - before[device], size)


def check_read_while_it_trains():
    network = spread(seeded(Pipeline), FIRST, SECOND)
    reader = RepeatedReader(network)
    for _ in range(3):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1.5)
        found = reader()
        for name, tensor in network.state_dict().items():
            np.testing.assert_array_equal(found[name], tensor.cpu().numpy())


class Waits(TorchDispatchMode):
    """Notes what reads from a device or copies between devices, for which a GPU would be waited for."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [item for item in tree_leaves((args, kwargs, result)) if isinstance(item, torch.Tensor)]
        is_copy = "copy" in func.name() and len({tensor.device for tensor in tensors}) > 1
        if is_copy or func is torch.ops.aten._local_scalar_dense.default:
            self.found.append(func.name())
        return result


def check_nothing_waits_for_the_device():
    """A device goes on to the next point while one is computed: move, network, loss and metrics stay on it."""
    network = seeded(Pipeline)
    origin, directions, buffers = plane_of(network, scale=0.1)
    ends = [{name: 2 * array for name, array in buffers.items() if array.dtype.kind == "f"}] * 2
    for policy, end_buffers in (("fixed", ()), ("interpolate", ends)):
        evaluator = make_evaluator(
            (nn.CrossEntropyLoss(weight=WEIGHTS.clone()), network, DATA, {"accuracy": accuracy}),
            MeasurementSetup(MeasurementOptions(buffers=policy), device=SECOND, plan=PLAN),
        )
        evaluator.load(origin, directions, buffers, end_buffers)
        coordinates = torch.zeros(2, dtype=torch.float64, device=SECOND)
        with torch.no_grad(), Waits() as waits:
            numbers = evaluator._measure_point([0.25, 0.5]).numbers
        assert waits.found == [], waits.found
        assert numbers.device == torch.device(SECOND)
        with torch.no_grad(), Waits() as waits:
            numbers.sum().item()
            coordinates.copy_(torch.ones(2))
        assert len(waits.found) == 2, waits.found
        evaluator.close()


def small_images():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))


def whole_batch_loss(outputs, targets):
    """Belongs to its batches."""
    return nn.functional.cross_entropy(outputs / outputs.std(), targets)


def check_samples_beyond_the_device():
    """3.5 MB of images where 1.6 MB are free: they stay on the host, and batches are moved at each point."""
    many = TensorDataset(images(8_000), classes(8_000, 5))
    loader = DataLoader(many, batch_size=500)
    cases = [
        (nn.CrossEntropyLoss(), many, MeasurementPlan(256), {}),
        (nn.CrossEntropyLoss(), many, MeasurementPlan(256, channels_last=True), {}),
        (nn.CrossEntropyLoss(), many, None, {}),
        (whole_batch_loss, loader, MeasurementPlan(256), {}),
        (nn.CrossEntropyLoss(), loader, MeasurementPlan(256), {"options": MeasurementOptions(buffers="recalibrate")}),
    ]
    for loss, data, plan, setup in cases:
        network = seeded(small_images)
        plane = plane_of(network, scale=0.1)
        expected, _, described = measured(network, plane, loss=loss, device=HOST, data=data, plan=plan, **setup)
        with twin_memory(1_600_000), pytest.warns(UserWarning, match="do not fit on twin:0 beside the network"):
            found, _, description = measured(network, plane, loss=loss, data=data, plan=plan, **setup)
        assert_equal(found, expected, rtol=1e-5)
        assert description.samples_sha256 == described.samples_sha256
        (note,) = [note for note in description.notes if "do not fit" in note]
        assert note.startswith("the samples (0.0035 GB) do not fit on twin:0 beside the network, so their"), note
        assert description.partition_dependent == (loss is whole_batch_loss)


def check_a_layout_beyond_the_device():
    """The images fit, but not twice: they are laid out batch by batch, and nothing fails."""
    many = TensorDataset(images(5_000), classes(5_000, 5))
    for plan in (MeasurementPlan(256, channels_last=True), None):
        network, plane, expected = on_the_host(small_images, data=many, plan=plan)
        with twin_memory(3_500_000):
            found, _, description = measured(network, plane, data=many, plan=plan)
        assert_equal(found, expected, rtol=1e-5)
        assert not [note for note in description.notes if "do not fit" in note]
