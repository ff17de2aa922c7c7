"""Which samples a DataLoader's sampler stands for."""

from __future__ import annotations

import random
from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from workers.measurement_options import MeasurementOptions
from workers.samples.array_samples import read_array_samples
from workers.samples.torch_samples import read_samples

COUNT = 30
INPUTS = torch.arange(COUNT * 2.0).reshape(COUNT, 2)
DATA = TensorDataset(INPUTS, torch.arange(COUNT))
EVERY, OTHERS = range(COUNT), "Of visits other samples each time"


def read(loader, **options):
    samples, notes = read_samples(loader, MeasurementOptions(**options))
    return [int(number) for batch in samples.batches(None) for number in batch.targets], notes


class Of(Sampler):
    """Visits what a function says, which also takes the number of the round."""

    def __init__(self, visits):
        self.visits, self.round = visits, 0

    def __iter__(self):
        self.round += 1
        return iter(self.visits(self.round))

    def __len__(self):
        return len(self.visits(1))


class SharedBatches:
    """As Accelerate's BatchSamplerShard."""

    def __init__(self, batch_sampler):
        self.batch_sampler, self.process_index = batch_sampler, 0

    def __iter__(self):
        return iter(list(self.batch_sampler)[::2])

    def __len__(self):
        return len(list(iter(self)))


class Bucketed(BatchSampler):
    """Leaves a random batch out."""

    def __iter__(self):
        batches = list(super().__iter__())
        batches.pop(random.randrange(len(batches)))
        return iter(batches)


SUBSET, SHUFFLED = range(20, 25), [24, 23, 20, 21, 22]
FIXED = {
    "own sampler": (lambda: {"sampler": Of(lambda _: SUBSET)}, SUBSET),
    "own sampler in another order each time": (lambda: {"sampler": Of(lambda _: random.sample(SUBSET, 5))}, SUBSET),
    "array": (lambda: {"sampler": np.array(SHUFFLED)}, SUBSET),
    "tensor": (lambda: {"sampler": torch.tensor(SHUFFLED)}, SUBSET),
    "list": (lambda: {"sampler": SHUFFLED}, SUBSET),
    "subset": (lambda: {"sampler": SubsetRandomSampler(SHUFFLED)}, SUBSET),
    "batches of a subset": (lambda: {"batch_sampler": BatchSampler(SubsetRandomSampler(SHUFFLED), 3, False)}, SUBSET),
    "a list that names one twice": (lambda: {"sampler": [5, 4, 5]}, [4, 5, 5]),
    "list of batches": (lambda: {"batch_sampler": [[20, 21], [24, 22, 23]]}, SUBSET),
    "own batch sampler": (lambda: {"batch_sampler": Of(lambda _: [[20, 21], [24, 22, 23]])}, SUBSET),
    "batches of an own sampler": (lambda: {"batch_sampler": BatchSampler(Of(lambda _: SUBSET), 2, False)}, SUBSET),
    # An order alone leaves all samples.
    "shuffled": (lambda: {"sampler": RandomSampler(DATA)}, EVERY),
    "two shuffled rounds": (lambda: {"sampler": RandomSampler(DATA, num_samples=2 * COUNT)}, EVERY),
    "own order": (lambda: {"sampler": Of(lambda _: random.sample(EVERY, COUNT))}, EVERY),
    "drop_last without a rest": (lambda: {"batch_size": 6, "shuffle": True, "drop_last": True}, EVERY),
    "weights only order": (
        lambda: {"sampler": WeightedRandomSampler(torch.arange(1.0, 31), COUNT, replacement=False)},
        EVERY,
    ),
    # What the loader leaves out each time is not measured.
    "drop_last": (lambda: {"batch_size": 8, "drop_last": True}, range(24)),
    "drop_last of a list": (lambda: {"sampler": [9, 8, 7, 6, 5], "batch_size": 2, "drop_last": True}, range(6, 10)),
    "a process's share": (lambda: {"sampler": DistributedSampler(DATA, 3, 1, shuffle=False)}, range(1, COUNT, 3)),
    # It is filled up from the beginning, so that all shares are equally long.
    "a share that is filled up": (
        lambda: {"sampler": DistributedSampler(DATA, 4, 3, shuffle=False)},
        [1, *range(3, COUNT, 4)],
    ),
    "a process's batches": (
        lambda: {"batch_sampler": SharedBatches(BatchSampler(SequentialSampler(DATA), 5, False))},
        [number for number in range(COUNT) if number // 5 % 2 == 0],
    ),
}


@pytest.mark.parametrize("kind", FIXED)
def test_a_fixed_set_is_what_is_measured(kind):
    options, expected = FIXED[kind]
    assert read(DataLoader(DATA, **options())) == (list(expected), [])
    assert read(DataLoader(DATA, **options()), num_samples=2) == (list(expected)[:2], [])


def test_a_shuffled_share_is_that_of_its_epoch():
    shares = [DistributedSampler(DATA, 3, rank) for rank in range(3)]
    numbers = [read(DataLoader(DATA, sampler=share))[0] for share in shares]
    assert [set(found) for found in numbers] == [set(share) for share in shares]
    assert sorted(chain.from_iterable(numbers)) == list(range(COUNT))


class Loader(DataLoader):
    """Gives the batches that a function makes of the usual ones."""

    def __init__(self, change, *arguments, **options):
        super().__init__(*arguments, **options)
        self.__dict__["change"] = change

    def __iter__(self):
        return self.change(super().__iter__())


def every_other_row(batches):
    return ((inputs[::2], targets[::2]) for inputs, targets in batches)


OWN = {
    "all in order": (lambda batches: batches, False, range(COUNT)),
    "all in any order": (lambda batches: batches, True, range(COUNT)),
    "a part": (every_other_row, False, range(0, COUNT, 2)),
    "the first batches": (lambda batches: iter([next(batches), next(batches)]), False, range(12)),
    "odd samples in any order": (
        lambda batches: ((inputs[targets % 2 == 1], targets[targets % 2 == 1]) for inputs, targets in batches),
        True,
        range(1, COUNT, 2),
    ),
}


@pytest.mark.parametrize("kind", OWN)
def test_a_loader_that_iterates_by_itself_gives_what_is_measured(kind):
    change, shuffle, expected = OWN[kind]
    numbers, notes = read(Loader(change, DATA, 6, shuffle=shuffle))
    again, _ = read(Loader(change, DATA, 6, shuffle=shuffle))
    assert numbers == again
    assert (sorted(numbers), notes) == (list(expected), [])
    if not shuffle or len(numbers) == COUNT:
        assert numbers == list(expected)


def test_samples_of_its_own_are_in_batches_as_large_as_the_ones_it_gives():
    """A loss may belong to its batches, and no sample is one."""

    def halved(batches):
        return ((inputs / 2, targets) for inputs, targets in batches)

    def batches_of(change, **options):
        samples, _ = read_samples(Loader(change, DATA, 7, **options), MeasurementOptions())
        return samples.batches(None)

    in_order, shuffled = batches_of(halved), batches_of(halved, shuffle=True)
    assert [batch.size for batch in in_order] == [batch.size for batch in shuffled] == [7, 7, 7, 7, 2]
    for batch in shuffled:
        np.testing.assert_array_equal(batch.inputs, INPUTS[batch.targets] / 2)
    ragged = batches_of(
        lambda batches: ((inputs[:, : 1 + int(targets[0]) % 2], targets) for inputs, targets in batches)
    )
    assert [batch.size for batch in ragged] == [7, 7, 7, 7, 2]


def for_ever(batches):
    items = list(batches)
    while True:
        yield from items


@pytest.mark.parametrize("change", [every_other_row, for_ever])
def test_a_loader_that_gives_others_each_time_is_told_and_its_data_set_is_measured(change):
    match = r"class Loader iterates in a way of its own, gives other samples each time or has no end.*each sample once"
    with pytest.warns(UserWarning, match=match):
        numbers, notes = read(Loader(change, DATA, 6, shuffle=True))
    assert numbers == list(range(COUNT))
    assert len(notes) == 1


def endless(_):
    while True:
        yield random.randrange(COUNT)


RANDOM = {
    "replacement": (lambda: {"sampler": RandomSampler(DATA, replacement=True)}, EVERY, "Sampler draws 30 at random"),
    "part of other data": (lambda: {"sampler": RandomSampler(range(10), num_samples=7)}, range(10), "Sampler draws 7"),
    "own random part": (lambda: {"sampler": Of(lambda _: random.sample(EVERY, 15))}, EVERY, OTHERS),
    "counted rounds": (lambda: {"sampler": Of(lambda number: range(number, number + 5))}, EVERY, OTHERS),
    "repeated": (lambda: {"sampler": Of(lambda _: [1, 2, 2])}, EVERY, "Of visits samples more than once"),
    "endless": (lambda: {"sampler": Of(endless)}, EVERY, "Of visits samples more than once"),
    "random batches": (lambda: {"batch_sampler": Of(lambda _: [random.sample(EVERY, 15)])}, EVERY, OTHERS),
    "batches left out": (
        lambda: {"batch_sampler": Bucketed(SubsetRandomSampler(range(20, COUNT)), 2, False)},
        range(20, COUNT),
        "Bucketed visits other samples each time",
    ),
    "keys": (lambda: {"sampler": Of(lambda _: ["a", "b"])}, EVERY, r"Of cannot be asked .*TypeError"),
    "failing": (lambda: {"sampler": Of(lambda _: 1 // 0)}, EVERY, r"Of cannot be asked .*ZeroDivisionError"),
}


@pytest.mark.parametrize("kind", RANDOM)
def test_no_fixed_set_is_told_and_all_are_measured(kind):
    options, expected, text = RANDOM[kind]
    random.seed(0)
    torch.manual_seed(0)
    loader = DataLoader(DATA, **options())
    with pytest.warns(UserWarning, match=f"{text}.* all {len(expected)} samples that it chooses from") as caught:
        numbers, notes = read(loader)
    assert numbers == list(expected)
    assert notes == [str(warning.message) for warning in caught]
    assert len(notes) == 1
    assert "give the DataLoader a Subset" in notes[0]
    with pytest.warns(UserWarning, match=f"a fixed set: 4 of the {len(expected)} samples"):
        assert read(loader, num_samples=4)[0] == list(expected)[:4]


def test_frameworks_that_take_arrays_see_the_same_samples():
    loader = DataLoader(DATA, 2, sampler=Of(lambda _: range(20, 25)))
    samples, notes = read_array_samples(loader, MeasurementOptions())
    assert [int(number) for batch in samples.batches(None) for number in batch.targets] == list(range(20, 25))
    assert notes == []
    with pytest.warns(UserWarning, match="draws 5 at random"):
        _, notes = read_array_samples(
            DataLoader(DATA, 2, sampler=RandomSampler(DATA, num_samples=5)), MeasurementOptions()
        )
    assert len(notes) == 1


def test_items_that_are_batches():
    batches = [DATA[start : start + 10] for start in range(0, COUNT, 10)]
    loader = DataLoader(batches, batch_size=None, sampler=Of(lambda _: [2, 1]))
    assert read(loader) == (list(range(10, 30)), [])
    loader = DataLoader(batches, batch_size=None, sampler=RandomSampler(range(3), num_samples=2))
    with pytest.warns(UserWarning, match="draws 2 at random.* all 3 batches"):
        assert read(loader)[0] == list(range(30))


def test_a_sampler_of_a_training_stays_as_it_is():
    class Own(Sampler):
        def __init__(self):
            self.generator = torch.Generator()
            self.order = list(range(10))
            self.rounds = 0

        def __iter__(self):
            self.rounds += 1
            random.shuffle(self.order)
            torch.randperm(3, generator=self.generator)
            return iter(self.order)

    sampler = Own()
    before = sampler.generator.get_state()
    assert read(DataLoader(DATA, sampler=sampler)) == (list(range(10)), [])
    assert sampler.order == list(range(10))
    assert sampler.rounds == 0
    assert torch.equal(sampler.generator.get_state(), before)
