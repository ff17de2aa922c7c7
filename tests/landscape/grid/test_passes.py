"""What a survey says of its passes over a data set that memory does not hold is what it does."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from landscape import evaluate, random_plane
from workers.errors import SampleMemoryError

COUNT, WIDTH = 600, 50
START = 3  # to hash them, to find out how the loss is added up, to measure the origin


class Counted(Dataset):
    def __init__(self):
        self.reads = np.zeros(COUNT, int)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.reads[index] += 1
        return torch.from_numpy(np.random.default_rng(index).standard_normal(WIDTH, dtype=np.float32)), index % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
@pytest.mark.parametrize("sampling", ["full", "adaptive"])
def test_as_many_passes_as_the_forecast_says(sampling, tmp_path, monkeypatch):
    # Otherwise the time that reading takes decides how many points are measured in a pass.
    monkeypatch.setattr("workers.measuring.streamed._MOST_POINTS", 20)
    monkeypatch.setattr("workers.measuring.streamed._LEAST_SECONDS", 1e9)
    dataset = Counted()

    def callback_fn():
        return nn.CrossEntropyLoss(), network(), DataLoader(dataset, batch_size=50), {}

    plane = random_plane(network(), seed=2)
    path = tmp_path / "streamed.h5"
    kept = evaluate(plane, callback_fn, size=11, progress=False, sampling=sampling)
    dataset.reads[:] = 0
    read = evaluate(plane, callback_fn, size=11, progress=False, sampling=sampling, sample_memory="20kB", output=path)
    assert read.report.forecast.passes == -(-121 // 20)
    assert "read 7 times more" in str(read.report.forecast)
    if sampling == "full":
        assert dataset.reads[-60] == START + 7
    np.testing.assert_allclose(read.loss, kept.loss, rtol=1e-6)
    np.testing.assert_allclose(read.metrics["loss_stderr"], kept.metrics["loss_stderr"], rtol=1e-5)
    assert any("more memory than sample_memory allows" in note for note in read.attributes["notes"])
    # The identity is the same: where memory allows it, the same landscape goes on from memory, and has nothing to do.
    again = evaluate(plane, callback_fn, size=11, progress=False, sampling=sampling, output=path)
    assert again.report.measured <= 1 + (sampling == "adaptive") * 121


@pytest.mark.parametrize("value", ["20kB", 20_000, "20000", "0.02 MB", "0.0000001%"])
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
def test_sizes(value):
    def callback_fn():
        batches = iter([next(iter(DataLoader(Counted(), batch_size=COUNT)))])
        return nn.CrossEntropyLoss(), network(), batches, {}

    with pytest.raises(SampleMemoryError, match=r"the samples take more than 1\d\d kB, more than the"):
        evaluate(random_plane(network()), callback_fn, sample_memory=value)
