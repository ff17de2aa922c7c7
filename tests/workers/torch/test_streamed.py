"""Samples that do not fit into memory: the same numbers as in memory, from one pass for many points."""

import numpy as np
import pytest
import torch
from examples import accuracy
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchmetrics.classification import MulticlassAUROC
from worker_cases import plane_of

from workers.errors import (
    CallbackFunctionError,
    ChangedSamplesError,
    PointsFailedError,
    SampleMemoryError,
    SamplesError,
)
from workers.evaluator import MeasurementSetup, SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pools.in_process import InProcessPool, Worker
from workers.samples.store import hold
from workers.torch.evaluator import TorchEvaluator
from workers.torch.losses import OwnLoss

COUNT, WIDTH, CLASSES = 700, 40, 5
BYTES = COUNT * (4 * WIDTH + 8)
MEMORY = SampleMemory(limit=BYTES // 10)
POINTS = np.array([[0.0, 0.0], [0.7, -0.4], [-1.0, 1.0], [0.2, 0.9]])
pytestmark = [
    pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*depends on how samples are batched:UserWarning"),
]


class Rows(Dataset):
    """Rows that a generator of their own makes; how often each was read is counted."""

    def __init__(self, count=COUNT):
        self.count, self.reads = count, np.zeros(count, int)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.reads[index] += 1
        generator = np.random.default_rng(index)
        return torch.from_numpy(generator.standard_normal(WIDTH, dtype=np.float32)), int(generator.integers(CLASSES))


class Stream(IterableDataset):
    def __iter__(self):
        return (Rows()[index] for index in range(COUNT))


class Refilled:
    """Batches that are always in the same tensors."""

    def __iter__(self):
        batch = torch.empty(50, WIDTH), torch.empty(50, dtype=torch.int64)
        for start in range(0, COUNT, 50):
            for row in range(50):
                batch[0][row], batch[1][row] = Rows()[start + row]
            yield batch


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, CLASSES))


def contrastive(outputs, targets):
    """A loss that belongs to its batches."""
    similar = functional.normalize(outputs) @ functional.normalize(outputs).T
    return functional.cross_entropy(similar / 0.2, torch.arange(len(outputs)))


def evaluator(loss, dataset=None, memory=MEMORY, metrics=None, plan=None, **options):
    setup = MeasurementSetup(MeasurementOptions(**options), 1, "cpu", plan, memory=memory)
    dataset = DataLoader(Rows(), batch_size=50) if dataset is None else dataset
    if metrics is None:  # one that needs all samples at once keeps a state for each point
        metrics = {"accuracy": accuracy, "auroc": MulticlassAUROC(CLASSES, thresholds=None)}
    made = TorchEvaluator(loss, network(), dataset, metrics, setup)
    made.load(*plane_of(network()), far_points=[[1.0, 1.0], [-1.0, 1.0]])
    return made


def check_both_ways(loss, dataset, memory=MEMORY, **options):
    """Returns the evaluator that reads samples anew, which must find what one finds that keeps them."""
    streamed = evaluator(loss, dataset, memory, **options)
    check_same(streamed, evaluator(loss, dataset, SampleMemory(), **options))
    return streamed


def check_same(streamed, kept):
    assert streamed.description.streamed
    assert not kept.description.streamed
    for name in ("metrics", "num_samples", "samples_sha256", "partition_dependent"):
        assert getattr(streamed.description, name) == getattr(kept.description, name), name
    found, expected = streamed.measure(POINTS), kept.measure(POINTS)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)
    parameters, _, buffers = plane_of(network(), seed=8)
    state, other = streamed.measure_state(parameters, buffers), kept.measure_state(parameters, buffers)
    assert state == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=torch.rand(CLASSES), reduction="sum"), contrastive],
    ids=["mean", "weighted sum", "of its batches"],
)
@pytest.mark.parametrize("batch_size", [50, 256])
def test_numbers_are_those_in_memory(loss, batch_size):
    with pytest.warns(UserWarning, match="read anew for each group of points"):
        streamed = check_both_ways(loss, DataLoader(Rows(), batch_size=batch_size))
    assert streamed.description.partition_dependent == (loss is contrastive)


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.slow
def test_small_batches_are_joined(batch_size):
    """A pass does not take a forward pass for each sample."""
    sizes = []

    def watched(outputs, targets):
        sizes.append(len(outputs))
        return outputs.abs().mean()

    loader, memory = DataLoader(Rows(), batch_size=batch_size), SampleMemory(limit=BYTES // 20)
    streamed = check_both_ways(nn.CrossEntropyLoss(), loader, memory, num_samples=203, metrics={"size": watched})
    streamed.use_batch_size(64)
    sizes.clear()
    streamed.measure(POINTS[:1])
    assert len(sizes) <= 203 // 64 + 2


def in_tensors():
    """It is in memory already; a limit is a limit."""
    rows = [Rows()[index] for index in range(COUNT)]
    return TensorDataset(torch.stack([row for row, _ in rows]), torch.tensor([target for _, target in rows]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Rows(), {}),
        (in_tensors(), {}),
        (Stream(), {}),
        (DataLoader(Stream(), batch_size=60), {}),
        (Refilled(), {"num_samples": 610}),
        (DataLoader(Rows(), batch_size=50, shuffle=True), {"samples": "random", "num_samples": 333, "seed": 4}),
        (DataLoader(Rows(), batch_size=64), {"num_samples": 401}),
        (DataLoader(Rows(), batch_size=64, num_workers=1), {}),
    ],
    ids=["data set", "tensors", "iterable", "loader of an iterable", "refilled", "random", "fewer", "processes"],
)
def test_all_kinds_of_data(dataset, options):
    check_both_ways(nn.CrossEntropyLoss(), dataset, **options)


@pytest.mark.slow  # a process starts, in vain
@pytest.mark.filterwarnings("ignore:Got pickle error")  # of an iterable data set, which ends with an error
def test_processes_of_a_loader_that_cannot_import_the_data_set(monkeypatch):
    """As where a script defines it, the worker has it by value, and the loader's processes are not forked."""

    def loader(kind, **options):
        monkeypatch.setattr(kind, "__module__", "__main__")
        return DataLoader(kind(), num_workers=1, multiprocessing_context="spawn", **options)

    streamed = evaluator(nn.CrossEntropyLoss(), loader(Rows, batch_size=64))
    check_same(streamed, evaluator(nn.CrossEntropyLoss(), DataLoader(Rows(), batch_size=64), SampleMemory()))
    with pytest.raises(SamplesError, match=r"processes of its loader \(.*Stream.*\); define it in a module"):
        evaluator(nn.CrossEntropyLoss(), loader(Stream, batch_size=60))


def test_a_network_that_computes_its_own_loss():
    def step(model, batch):
        outputs = model(batch[0])
        return functional.cross_entropy(outputs, batch[1], ignore_index=2), outputs

    check_both_ways(OwnLoss(step), DataLoader(Rows(), batch_size=50), metrics={})


def test_data_without_batches_keeps_ours_for_a_loss_that_does_not_split():
    """In memory all samples would be one batch; that memory does not hold them is said."""
    with pytest.warns(UserWarning, match="batches of 128, which are our choice, are kept"):
        streamed = evaluator(contrastive, Rows(), metrics={})
    kept = evaluator(contrastive, DataLoader(Rows(), batch_size=128), SampleMemory(), metrics={})
    np.testing.assert_allclose(streamed.measure(POINTS)["loss"], kept.measure(POINTS)["loss"], rtol=1e-6)


def test_smaller_batches_give_the_same_values():
    streamed = evaluator(nn.CrossEntropyLoss(), plan=MeasurementPlan(50, 1))
    before = streamed.measure(POINTS)
    streamed.use_batch_size(7)
    after = streamed.measure(POINTS)
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, rtol=1e-6)


class Fickle(Rows):
    """From some pass on, one sample in the middle is another one, two change places, or samples are missing."""

    def __init__(self, how, passes):
        super().__init__()
        self._how, self._passes = how, passes

    def __getitem__(self, index):
        row = super().__getitem__(index)
        if index in (400, 401) and self.reads[index] > self._passes:
            return (row[0] + 1e-3, row[1]) if self._how == "noise" else Rows()[801 - index]
        return row


@pytest.mark.parametrize("how", ["noise", "order"])
def test_passes_that_differ_are_an_error(how):
    streamed = evaluator(nn.CrossEntropyLoss(), DataLoader(Fickle(how, passes=4), batch_size=50), metrics={})
    with pytest.raises(
        ChangedSamplesError, match=r"batch 8 \(samples 400 to 449\) is another one now.*augmentation off"
    ):
        [Worker(streamed).measure_points([tuple(point) for point in POINTS]) for _ in range(5)]


def test_a_stream_that_gives_fewer_samples_later_is_an_error():
    class Shrinking:
        passes = 0

        def __iter__(self):
            Shrinking.passes += 1
            batches = list(DataLoader(Rows(), batch_size=50))
            return iter(batches if Shrinking.passes < 4 else batches[:-2])

    with pytest.raises(ChangedSamplesError, match="gave 12 batches after 14"):
        evaluator(nn.CrossEntropyLoss(), Shrinking(), metrics={}).measure(POINTS)


def test_a_point_that_raises_fails_alone():
    def picky(outputs, targets):
        if outputs.abs().max() > 50:
            raise RuntimeError("too large for me")
        return outputs.abs().mean()

    streamed = evaluator(nn.CrossEntropyLoss(), metrics={"picky": picky})
    good, bad = (0.1, 0.1), (1e4, 1e4)
    outcomes = Worker(streamed).measure_points([good, bad, good])
    assert outcomes[0] == outcomes[2]
    assert outcomes[0][0]["loss"] > 0
    assert outcomes[1][0] is None
    assert "too large for me" in outcomes[1][1]
    with pytest.raises(PointsFailedError, match="too large for me"):
        streamed.measure(np.array([bad]))
    parameters, _, buffers = plane_of(network())
    large = {name: array * 1e4 for name, array in parameters.items()}
    with pytest.raises(CallbackFunctionError, match="too large for me"):
        streamed.measure_state(large, buffers)


@pytest.mark.parametrize(
    ("dataset", "options", "text"),
    [
        (DataLoader(Rows(), batch_size=50), {"buffers": "recalibrate"}, 'use buffers="fixed"'),
        (iter(list(DataLoader(Rows(), batch_size=50))), {}, "dataset can be read only once"),
    ],
)
def test_what_cannot_be_read_in_passes_is_refused(dataset, options, text):
    with pytest.raises(SampleMemoryError, match=r"more than the .* that sample_memory allows.*num_samples") as error:
        evaluator(nn.CrossEntropyLoss(), dataset, **options)
    assert text in str(error.value)


def test_the_second_worker_reads_the_head_alone():
    first = evaluator(nn.CrossEntropyLoss())
    held = first.description.held
    dataset = Rows()
    memory = SampleMemory((held,), shared=True, limit=BYTES // 10)
    setup = MeasurementSetup(MeasurementOptions(), 1, "cpu", MeasurementPlan(50, 1), memory=memory)
    second = TorchEvaluator(nn.CrossEntropyLoss(), network(), DataLoader(dataset, batch_size=50), {}, setup)
    assert (dataset.reads == 0).sum() > COUNT / 2
    assert second.description.samples_sha256 == first.description.samples_sha256
    assert hold(second._main.samples) == held
    other = TorchEvaluator(nn.CrossEntropyLoss(), network(), DataLoader(Rows(COUNT - 1), batch_size=50), {}, setup)
    assert other.description.samples_sha256 != first.description.samples_sha256


def test_the_pool_measures_a_group_of_points_in_one_pass():
    dataset = Rows()

    def callback():
        return nn.CrossEntropyLoss(), network(), DataLoader(dataset, batch_size=50), {}

    with InProcessPool(callback, MeasurementOptions(), memory=MEMORY) as pool:
        before = dataset.reads[-60]
        pool.load(*plane_of(network()))
        (origin,) = pool.measure_origin()
        assert dataset.reads[-60] - before == 2, "a look at the plane; twice the origin and a far point"
        measured = origin.measured
        assert measured.values[0] == measured.values[1] != measured.elsewhere
        assert measured.pass_cost.points >= 1
        assert measured.pass_cost.reading > 0
