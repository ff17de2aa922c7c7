"""A data set that memory does not hold is measured all the same, in as many passes as the survey says."""

import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from large_rows import ROW_BYTES, LargeRows, large_rows_network
from scripts import run_script
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from landscape import evaluate, pca_plane, random_plane
from workers.errors import SampleMemoryError

ROOM = 96 << 20
COUNT = 4 * ROOM // ROW_BYTES + 1
X, Y = (-1.0, 0.0, 1.0), (-1.0, 0.5)
SAMPLES, WIDTH = 600, 50
START = 3  # to hash them, to find out how the loss is added up, to measure the origin

LIMITED = f"""
    import json, os, resource, sys, warnings
    from pathlib import Path
    sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    from large_rows import LargeRows, large_rows_network
    from landscape import evaluate, random_plane
    from workers.errors import SampleMemoryError

    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])  # threads that wait for each other are slow elsewhere

    def callback_fn(count={COUNT}):
        return nn.CrossEntropyLoss(), large_rows_network(), DataLoader(LargeRows(count), batch_size=64), {{}}

    plane = random_plane(large_rows_network(), seed=5)
    how = dict(x={X}, y={Y}, device_ids=[0], progress=False)
    evaluate(plane, lambda: callback_fn(128), sample_memory=1 << 20, **how)  # loads everything that is loaded later
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + {ROOM}, used + {ROOM}))
    try:
        evaluate(plane, callback_fn, sample_memory="1TB", **how)
        refused = "not at all"
    except SampleMemoryError as error:
        refused = str(error)
    landscape = evaluate(plane, callback_fn, **how)
    found = {{name: landscape.metrics[name].tolist() for name in ("loss", "loss_stderr")}}
    print(json.dumps({{"refused": refused, "forecast": str(landscape.report.forecast), **found}}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_four_times_the_memory_limit_is_measured():
    result = json.loads(run_script(textwrap.dedent(LIMITED)).splitlines()[-1])
    assert "there is no room for the samples" in result["refused"], "the limit is real"
    assert "the samples exceed sample_memory and are read once more" in result["forecast"]
    expected, errors = plain_loop()
    np.testing.assert_allclose(result["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(result["loss_stderr"], errors, rtol=1e-5)


def plain_loop():
    """Returns the loss at each point and its standard error, in a loop over points and batches of PyTorch alone."""
    network = large_rows_network()
    plane = random_plane(network, seed=5)
    first, second = plane.directions
    found = np.empty((2, len(Y), len(X)))
    for row, column in np.ndindex(len(Y), len(X)):
        state = {name: plane.origin[name] + X[column] * first[name] + Y[row] * second[name] for name in first}
        network.load_state_dict({name: torch.as_tensor(array) for name, array in state.items()})
        with torch.no_grad():
            losses = [
                functional.cross_entropy(network(inputs), targets, reduction="none").double()
                for inputs, targets in DataLoader(LargeRows(COUNT), batch_size=97)
            ]
        every = torch.cat(losses)
        found[:, row, column] = every.mean(), every.std() / len(every) ** 0.5
    return found


class Counted(Dataset):
    def __init__(self):
        self.reads = np.zeros(SAMPLES, int)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.reads[index] += 1
        return torch.from_numpy(np.random.default_rng(index).standard_normal(WIDTH, dtype=np.float32)), index % 3


def network(seed=0):
    torch.manual_seed(seed)
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
def test_the_forecast_counts_passes_that_a_checkpoint_ends(monkeypatch):
    """Of 81 points on the coarse grid, three networks off the plane, and their three feet with 40 other points."""
    monkeypatch.setattr("workers.measuring.streamed._MOST_POINTS", 25)
    monkeypatch.setattr("workers.measuring.streamed._LEAST_SECONDS", 1e9)
    dataset, networks = Counted(), [network(seed) for seed in range(4)]
    read = evaluate(
        pca_plane(networks, network=networks[0]),
        lambda: (nn.CrossEntropyLoss(), network(), DataLoader(dataset, batch_size=50), {}),
        size=11,
        progress=False,
        sample_memory="20kB",
    )
    assert read.report.forecast.passes == 4 + 3 + 2
    assert dataset.reads[-60] == START + 4 + 3 + 2


@pytest.mark.parametrize("value", ["20kB", 20_000, "20000", "0.02 MB", "0.0000001%"])
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
def test_sizes(value):
    def callback_fn():
        batches = iter([next(iter(DataLoader(Counted(), batch_size=SAMPLES)))])
        return nn.CrossEntropyLoss(), network(), batches, {}

    with pytest.raises(SampleMemoryError, match=r"the samples take more than 1\d\d kB, more than the"):
        evaluate(random_plane(network()), callback_fn, sample_memory=value)
