"""Reading samples leaves the process's random state where it was."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset
from worker_cases import Made, classes, features, mlp

from landscape import evaluate, random_plane
from workers.errors import SamplesError
from workers.evaluator import SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.pools.first_call import FirstCall
from workers.samples.data_sets import read_sets
from workers.samples.random_state import OwnRandomState, random_state, random_state_kept, set_random_state
from workers.samples.torch_samples import read_samples

INPUTS, TARGETS = features(), classes()


def draw():
    return random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002


class Stream(IterableDataset):
    def __iter__(self):
        draw()
        return iter(zip(INPUTS, TARGETS, strict=True))


def drawing(index):
    """Draws, and gives the same sample all the same."""
    draw()
    return INPUTS[index], TARGETS[index]


DRAWING = Made(drawing, len(INPUTS))


class Part(Sampler):
    def __iter__(self):
        draw()
        return iter(torch.randperm(20).tolist())

    def __len__(self):
        return 20


DATA = {
    "stream": Stream,
    "loader of a stream": lambda: DataLoader(Stream(), 8),
    "data set": lambda: DRAWING,
    "loader": lambda: DataLoader(DRAWING, 8, shuffle=True),
    "sampler": lambda: DataLoader(TensorDataset(INPUTS, TARGETS), 8, sampler=Part()),
    "several": lambda: {"train": DataLoader(DRAWING, 8), "test": DataLoader(Stream(), 8)},
    "list of batches": lambda: [(INPUTS, TARGETS)],
}


# Python's generator is looked at below: the tests' checks of annotations draw from it too.
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
@pytest.mark.parametrize(
    ("kind", "memory"), [*((kind, "auto") for kind in DATA), ("loader of a stream", 400), ("loader", 400)]
)
def test_a_landscape_leaves_the_random_state(kind, memory):
    network, data = mlp(), DATA[kind]()
    plane = random_plane(network, seed=0)
    before = torch.get_rng_state(), np.random.get_state()[1:3]  # noqa: NPY002
    callback = lambda: (nn.CrossEntropyLoss(), network, data, {})  # noqa: E731
    found = evaluate(plane, callback, size=3, device_ids=[0], sample_memory=memory, progress=False)
    assert any("read anew" in note for note in found.attributes["notes"]) == (memory == 400)
    assert torch.equal(torch.get_rng_state(), before[0])
    after = np.random.get_state()[1:3]  # noqa: NPY002
    assert after[1] == before[1][1]
    np.testing.assert_array_equal(after[0], before[1][0])


def test_a_loaders_own_generator_stays():
    generator = torch.Generator()
    generator.manual_seed(3)
    before = generator.get_state()
    read_samples(DataLoader(Stream(), 8, generator=generator), MeasurementOptions())
    assert torch.equal(generator.get_state(), before)


def test_samples_that_change_are_found_out_all_the_same():
    class Noisy(IterableDataset):
        def __iter__(self):
            return ((item + torch.rand(6), target) for item, target in zip(INPUTS, TARGETS, strict=True))

    before = torch.get_rng_state()
    with pytest.raises(SamplesError, match="first batch changed"):
        read_sets(Noisy(), MeasurementOptions(), SampleMemory(), lambda *given: read_samples(given[0], given[1]))
    assert torch.equal(torch.get_rng_state(), before)


def test_all_generators_are_put_back():
    before = random_state()
    with random_state_kept():
        first = draw()
    assert draw() == first
    set_random_state(before)

    @random_state_kept()
    def fail():
        draw()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert draw() == first


def test_those_of_gpus_too_where_they_are_in_use(monkeypatch):
    held = [torch.tensor([7], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in held])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: held.__setitem__(slice(None), states))
    with random_state_kept():
        held[0] += 1
    assert held[0].item() == 7


def test_own_random_numbers_go_on():
    start = random_state()
    expected = [draw() for _ in range(4)]
    set_random_state(start)
    own = OwnRandomState()
    found = []
    for numbers in own.iterate(draw() for _ in range(2)):
        found.append(numbers)
        assert draw() == expected[len(found) - 1], "the process's own go on as if nobody else had drawn"
    found += own.iterate(draw() for _ in range(2))
    assert found == expected


@pytest.mark.parametrize("seeds", [False, True])
def test_so_does_a_callback_fn_that_draws_or_sets_a_seed(seeds):
    """And samples are read with the numbers that it left, as in a worker of another process."""
    read = []

    def drawn(index):
        read[-1].append(torch.rand(1).item())
        return drawing(index)

    def callback_fn():
        network = mlp()
        if seeds:
            torch.manual_seed(7)
        torch.rand(3)
        return nn.CrossEntropyLoss(), network, DataLoader(Made(drawn, len(INPUTS)), 8), {}

    plane, before = random_plane(mlp(), seed=0), torch.get_rng_state()
    for function in (callback_fn, FirstCall(callback_fn)):
        assert torch.equal(torch.get_rng_state(), before)
        read.append([])
        evaluate(plane, function, size=3, device_ids=[0], progress=False)
        assert torch.equal(torch.get_rng_state(), before)
    assert read[0]
    assert read[0] == read[1]
