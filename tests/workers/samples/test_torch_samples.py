"""The fixed set of samples: which they are, in which order, and what cannot be measured."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)
from worker_cases import Made, sentence_loader

from collectors.networks.batches import leaves
from workers.errors import SamplesError
from workers.measurement_options import MeasurementOptions
from workers.samples import sources
from workers.samples.array_samples import is_pair_of_arrays, read_array_samples
from workers.samples.batches import Batch, quick_mark
from workers.samples.samples import PassFacts, SampleStream
from workers.samples.torch_samples import read_samples

COUNT = 30
INPUTS = torch.arange(COUNT * 2.0).reshape(COUNT, 2)
TARGETS = torch.arange(COUNT)
DATA = TensorDataset(INPUTS, TARGETS)


def read(dataset, **options):
    samples, notes = read_samples(dataset, MeasurementOptions(**options))
    batches = samples.batches(None)
    numbers = [int(number) for batch in batches for number in batch.targets.reshape(-1)]
    return numbers, [batch.size for batch in batches], samples, notes


class Stream(IterableDataset):
    def __init__(self, inputs=INPUTS, targets=TARGETS):
        self.inputs, self.targets = inputs, targets

    def __iter__(self):
        return iter(zip(self.inputs, self.targets, strict=True))


def plain(items):
    return Made(items.__getitem__, len(items))


def batch_list(size=8):
    return [(INPUTS[start : start + size], TARGETS[start : start + size]) for start in range(0, COUNT, size)]


def reusing():
    """A stream that fills the same tensors again."""
    inputs, targets = torch.empty(10, 2), torch.empty(10, dtype=torch.int64)
    for start in range(0, COUNT, 10):
        inputs.copy_(INPUTS[start : start + 10])
        targets.copy_(TARGETS[start : start + 10])
        yield inputs, targets


KINDS = {
    "loader": (lambda: DataLoader(DATA, batch_size=8), [8, 8, 8, 6]),
    "shuffling loader": (lambda: DataLoader(DATA, batch_size=8, shuffle=True), [8, 8, 8, 6]),
    "shuffling loader of a subset": (lambda: DataLoader(Subset(DATA, range(COUNT)), 8, shuffle=True), [8, 8, 8, 6]),
    "batch sampler": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 8, False)),
        [8, 8, 8, 6],
    ),
    "own batch sampler": (lambda: DataLoader(DATA, batch_sampler=[range(5, COUNT), range(5)]), [COUNT]),
    "loader without batching": (lambda: DataLoader(plain(batch_list()), batch_size=None), [8, 8, 8, 6]),
    "data set": (lambda: DATA, [COUNT]),
    "pair of tensors": (lambda: (INPUTS, TARGETS), [COUNT]),
    "list of two tensors": (lambda: [INPUTS, TARGETS], [COUNT]),
    "iterable data set": (Stream, [COUNT]),
    "loader of an iterable data set": (lambda: DataLoader(Stream(), batch_size=8), [8, 8, 8, 6]),
    "list of batches": (batch_list, [8, 8, 8, 6]),
    "generator": (lambda: (batch for batch in batch_list()), [8, 8, 8, 6]),
    "generator of the same tensors": (reusing, [10, 10, 10]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_samples_come_in_data_set_order_and_are_known_by_their_values(kind):
    make, sizes = KINDS[kind]
    numbers, found, samples, notes = read(make())
    assert numbers == list(range(COUNT))
    assert found == sizes
    assert notes == []
    assert samples.can_be_cut
    first, cut_sizes, _, _ = read(make(), num_samples=11)
    assert first == list(range(11))
    assert sum(cut_sizes) == 11
    expected = read(DATA)[2]
    assert samples.sha256(with_batches=False) == expected.sha256(with_batches=False)
    assert (samples.sha256(with_batches=True) == expected.sha256(with_batches=True)) == (sizes == [COUNT])


def test_identity_knows_values_types_shapes_and_order():
    variants = [
        DATA,
        TensorDataset(INPUTS + 1e-6 * (INPUTS == 0), TARGETS),
        TensorDataset(INPUTS.double(), TARGETS),
        TensorDataset(INPUTS.reshape(COUNT, 1, 2), TARGETS),
        TensorDataset(INPUTS.flip(0), TARGETS),
        TensorDataset(INPUTS, TARGETS + 1),
        Subset(DATA, range(COUNT - 1)),
    ]
    hashes = {read(item)[2].sha256(with_batches=False) for item in variants}
    assert len(hashes) == len(variants)


@pytest.mark.parametrize("batch_size", [1, 7, 30, 100])
def test_batches_are_cut_anew_as_views(batch_size):
    samples = read(DataLoader(DATA, batch_size=8))[2]
    batches = samples.batches(batch_size)
    assert torch.equal(torch.cat([batch.inputs for batch in batches]), INPUTS)
    assert [len(batch.inputs) for batch in batches] == [batch.size for batch in batches]
    assert len({batch.inputs.untyped_storage().data_ptr() for batch in [*batches, *samples.own_batches]}) == 1


@pytest.mark.parametrize("own", [1, 2, 3, 8, 29, 30, 64])
def test_two_partitions_hold_the_same_samples(own):
    samples = read(DataLoader(DATA, batch_size=own))[2]
    groups = samples.regrouped()
    assert any(len(batches) != len(others) for batches, others in groups)
    for group in groups:
        pieces, (batch,) = group if own < 3 else group[::-1]
        assert torch.equal(torch.cat([piece.inputs for piece in pieces]), batch.inputs)
        assert batch.size == sum(piece.size for piece in pieces)
        if own > 2 and len(pieces) > 1:
            assert math.gcd(pieces[0].size, batch.size) == 1
    for side in zip(*groups, strict=True):
        assert torch.equal(torch.cat([batch.inputs for batches in side for batch in batches]), INPUTS)
    own_batches = [batch for batches, _ in groups for batch in batches]
    assert [batch.size for batch in own_batches] == [batch.size for batch in samples.own_batches]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_two_partitions_of_very_few_samples(count):
    samples = read((INPUTS[:count], TARGETS[:count]))[2]
    (((batch,), pieces),) = samples.regrouped()
    assert torch.equal(batch.inputs, INPUTS[:count])
    assert len(pieces) == min(count, 2)


def test_what_comes_without_batches_is_one():
    """A batch size of our own choice must not decide a result."""
    count = 300
    inputs = torch.randn(count, 3)
    data = TensorDataset(inputs, inputs)
    of_own_batches = DataLoader(data, batch_sampler=[range(2), range(2, count)])
    for dataset in ((inputs, inputs), data, Stream(inputs, inputs), of_own_batches):
        samples = read(dataset)[2]
        assert [batch.size for batch in samples.own_batches] == [count]
        assert max(batch.size for (batch,), _ in samples.regrouped()) == 128
        in_parts = samples.all_at_once(False)
        assert [batch.size for batch in in_parts.own_batches] == [128, 128, 44]
        assert in_parts.sha256(with_batches=True) != samples.sha256(with_batches=True)
    for dataset in (DataLoader(data, 100), [(inputs[:100], inputs[:100]), (inputs[100:], inputs[100:])]):
        assert len(read(dataset)[2].own_batches) > 1


def test_random_samples_are_seeded_and_in_order():
    first = read(DATA, num_samples=10, samples="random", seed=3)
    again = read(DataLoader(DATA, batch_size=4, shuffle=True), num_samples=10, samples="random", seed=3)
    other = read(DATA, num_samples=10, samples="random", seed=4)
    assert first[0] == again[0] == sorted(first[0])
    assert len(set(first[0])) == 10
    assert first[0] != other[0]
    assert first[0] != list(range(10))
    assert read(DATA, samples="random")[0] == list(range(COUNT))
    with pytest.raises(ValueError, match='samples="random" needs a data set that is read by index'):
        read(Stream(), samples="random")


def test_more_samples_than_there_are():
    with pytest.warns(UserWarning, match="num_samples is 99, but the data set has 30; all of them are used"):
        numbers, _, _, notes = read(DATA, num_samples=99)
    assert numbers == list(range(COUNT))
    assert notes == ["num_samples is 99, but the data set has 30; all of them are used."]
    with pytest.warns(UserWarning, match="num_samples is 99"):
        assert read(Stream(), num_samples=99)[0] == list(range(COUNT))


def test_a_stream_is_read_no_further_than_needed():
    def longer():
        yield from batch_list()[:3]
        pytest.fail("it was read further")

    assert read(longer(), num_samples=20)[0] == list(range(20))


class Ones:
    """Batches of so many samples each, without an end or so many."""

    def __init__(self, samples=2, batches=None):
        self.samples, self.batches, self.given = samples, batches, 0

    def __iter__(self):
        many = torch.ones(1, dtype=torch.uint8).expand(self.samples)
        for _ in itertools.count() if self.batches is None else range(self.batches):
            self.given += 1
            yield many, many


class OnesStream(Ones, IterableDataset):
    pass


class CountedOnes(Ones):
    """It says that there are three."""

    def __len__(self):
        return 3


class CountedStream(CountedOnes, IterableDataset):
    pass


class OnesLoader(DataLoader):
    def __iter__(self):
        return iter(Ones(0))


MANY = 4_000_000


@pytest.mark.parametrize("as_loader", [False, True])
def test_a_stream_without_an_end_is_an_error_and_one_with_a_length_is_read(as_loader):
    def read_all(stream, **options):
        batches = DataLoader(stream, batch_size=None) if as_loader else iter(stream)
        batches = list(batches) if isinstance(stream, CountedStream) and not as_loader else batches
        samples, _ = read_samples(batches, MeasurementOptions(**options))
        return samples.count

    stream = OnesStream(MANY)
    with pytest.raises(SamplesError, match=r"more than 10,000,000 samples and .* no\s*length.*num_samples=10_000"):
        read_all(stream)
    assert stream.given == 3
    assert read_all(OnesStream(MANY), num_samples=9_000_000) == 9_000_000
    assert read_all(CountedStream(MANY, 3)) == 12_000_000


@pytest.fixture
def few_are_endless(monkeypatch):
    monkeypatch.setattr(sources, "_ENDLESS", 50)


@pytest.mark.parametrize("make", [CountedOnes, lambda: DataLoader(CountedStream(), batch_size=None)])
@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
def test_a_stream_that_goes_on_behind_its_length_is_an_error(few_are_endless, make):
    """It filled the memory."""
    match = r"more than 50 samples and more batches than its length says \(3\), so it may never end\. .*=10_000"
    with pytest.raises(SamplesError, match=match):
        read_samples(make(), MeasurementOptions())
    assert read_samples(make(), MeasurementOptions(num_samples=20))[0].count == 20


@pytest.mark.parametrize("make", [lambda: Ones(0), lambda: OnesLoader(DATA)])
@pytest.mark.parametrize("count", [None, 20])
def test_batches_without_samples_that_have_no_end_are_an_error(few_are_endless, make, count):
    with pytest.raises(SamplesError, match=r"more than 50 batches without any sample, so it .* Leave such"):
        read_samples(make(), MeasurementOptions(num_samples=count))


@pytest.mark.parametrize("make", [list, lambda batches: DataLoader(batches, batch_size=None)])
@pytest.mark.parametrize("read_any", [read_samples, read_array_samples])
def test_batches_that_are_counted_are_read_however_many_they_are(few_are_endless, make, read_any):
    """They "had no length" where they were read by index, or as arrays."""
    batches = [(INPUTS[start : start + 4], TARGETS[start : start + 4]) for start in range(0, 28, 4)] * 3
    assert read_any(make(batches), MeasurementOptions())[0].count == 84


def test_ragged_batches_are_kept():
    samples, _ = read_samples(sentence_loader(5), MeasurementOptions())
    assert not samples.can_be_cut
    assert samples.count == 23
    assert [batch.size for batch in samples.batches(64)] == [5, 5, 5, 5, 3]
    for found, (inputs, targets) in zip(samples.own_batches, sentence_loader(5), strict=True):
        assert torch.equal(found.targets, targets)
        assert all(map(torch.equal, leaves(found.inputs), leaves(inputs)))
    assert sum(piece.size for _, pieces in samples.regrouped() for piece in pieces) == 23
    other, _ = read_samples(sentence_loader(4), MeasurementOptions())
    assert samples.sha256(with_batches=False) != other.sha256(with_batches=False)
    few, _ = read_samples(sentence_loader(5), MeasurementOptions(num_samples=7))
    assert [batch.size for batch in few.batches(None)] == [5, 2]


def test_batches_of_the_same_texts_are_kept():
    texts = np.array(["a b", "b c"], object)
    samples, _ = read_array_samples([(texts, np.arange(2)), (texts, np.arange(2, 4))], MeasurementOptions())
    assert not samples.can_be_cut
    assert [batch.inputs.tolist() for batch in samples.own_batches] == [["a b", "b c"]] * 2


def test_sparse_arrays_are_refused():
    sparse = csr_array(np.eye(4))
    message = r"must give arrays, but gave a csr_array, which NumPy takes for one object; make it dense \(toarray"
    with pytest.raises(SamplesError, match=message):
        read_array_samples((sparse, np.arange(4)), MeasurementOptions())


def test_nested_inputs():
    inputs = {"ids": TARGETS.reshape(COUNT, 1), "more": (INPUTS, INPUTS[:, 0])}
    items = [
        ({"ids": inputs["ids"][index], "more": (INPUTS[index], INPUTS[index, 0])}, TARGETS[index])
        for index in range(COUNT)
    ]
    samples = read(DataLoader(plain(items), batch_size=8))[2]
    assert samples.can_be_cut
    batch = samples.batches(11)[1]
    assert torch.equal(batch.inputs["ids"], inputs["ids"][11:22])
    assert torch.equal(batch.inputs["more"][0], INPUTS[11:22])


class Picture:
    """An object that only collate_fn turns into numbers, and whose text is its address."""

    def __init__(self, number):
        self.number = number


PICTURES = Made(lambda index: (Picture(index), index), COUNT)


def collate_pictures(samples):
    pictures, numbers = zip(*samples, strict=True)
    return torch.tensor([[float(picture.number)] for picture in pictures]), torch.tensor(numbers)


class Once:
    """An iterable that can be read once."""

    def __init__(self):
        self.batches = iter(batch_list())

    def __iter__(self):
        return self.batches


@pytest.mark.parametrize(
    "make",
    [
        Once,
        lambda: DataLoader(PICTURES, batch_size=8, collate_fn=collate_pictures),
        lambda: (torch.where(INPUTS == 6, torch.nan, INPUTS), TARGETS),
    ],
    ids=["once", "objects that only collate_fn understands", "a sample with NaN"],
)
def test_all_samples_are_read(make):
    assert read(make())[0] == list(range(COUNT))


def with_texts(samples):
    numbers = torch.tensor([number for _, number in samples])
    return {"x": numbers[:, None].float(), "names": [str(number) for number in numbers]}, numbers


def of_other_shapes(samples):
    return torch.ones(len(samples), 2), [torch.ones(number % 3, 4) for _, number in samples]


@pytest.mark.parametrize("collate", [with_texts, of_other_shapes])
def test_texts_and_targets_of_any_shape_are_not_cut(collate):
    samples, _ = read_samples(DataLoader(PICTURES, batch_size=8, collate_fn=collate), MeasurementOptions())
    assert [batch.size for batch in samples.batches(None)] == [8, 8, 8, 6]
    assert not samples.can_be_cut


def test_identity_does_not_see_addresses():
    def make(change=0):
        def collate(samples):
            array = np.arange(2000)
            array[1000] += change
            inputs = {"x": torch.ones(len(samples), 1), "extra": Picture(1), "array": array}
            return inputs, torch.arange(len(samples))

        return read(DataLoader(PICTURES, batch_size=COUNT, collate_fn=collate))[2].sha256(with_batches=False)

    assert make() == make()
    assert make() != make(1)  # NumPy's text of a long array leaves its middle out


def noisy(from_index=0):
    return Made(lambda index: (INPUTS[index] + (torch.rand(2) if index >= from_index else 0), TARGETS[index]), COUNT)


class Changing(Stream):
    def __iter__(self):
        return iter([(torch.rand(2), TARGETS[0])] * COUNT)


def noisy_collate(samples):
    inputs, targets = zip(*samples, strict=True)
    return torch.stack(inputs) + torch.rand(1), torch.stack(targets)


EMPTY = "dataset must hold at least one sample, but it is empty"


@pytest.mark.parametrize(
    ("dataset", "error", "text"),
    [
        *((empty, SamplesError, EMPTY) for empty in ((INPUTS[:0], TARGETS[:0]), plain([]), [], iter([]))),
        (DataLoader(DATA, sampler=SubsetRandomSampler([])), SamplesError, EMPTY),
        (DataLoader(plain([]), batch_size=None), SamplesError, EMPTY),
        (DataLoader(noisy(), 8), SamplesError, "same sample each time, but sample 0 changed between two reads"),
        (DataLoader(noisy(5), 8), SamplesError, "same sample each time, but sample 5 changed between two reads"),
        (noisy(), SamplesError, "sample 0 changed"),
        (noisy(5), SamplesError, "sample 5 changed"),
        (DataLoader(DATA, 8, collate_fn=noisy_collate), SamplesError, "changed between two reads"),
        (Changing(), SamplesError, r"first batch changed between two reads\. Switch shuffling"),
        (TensorDataset(INPUTS), SamplesError, r"batches of \(inputs, targets\), but gave a list of 1"),
        (INPUTS, SamplesError, r"batches of \(inputs, targets\), but gave a Tensor"),
        (TensorDataset(INPUTS, TARGETS, TARGETS), SamplesError, "but gave a list of 3"),
        (plain([{"x": INPUTS[0], "y": TARGETS[0]}]), SamplesError, "but gave a dict"),
        ((INPUTS, TARGETS[:5]), SamplesError, "as many targets as inputs, but got 30 inputs and 5 targets"),
        ([(INPUTS[:8], TARGETS[:5])], SamplesError, r"gave 8 inputs and targets of length \[5\]"),
        ([("text", TARGETS[:5])], SamplesError, "must give tensors as inputs, but gave str"),
        (3, TypeError, "must be a DataLoader, a Dataset, a pair of tensors or an iterable of batches, but got int"),
        (None, TypeError, "a pair of tensors or an iterable of batches, but got NoneType"),
        (Dataset(), TypeError, "dataset must have a length to be read by index, but Dataset has none"),
    ],
)
def test_what_cannot_be_measured(dataset, error, text):
    with pytest.raises(error, match=text):
        read(dataset)


def test_passes_in_smaller_blocks_hold_the_same_samples():
    """A GPU may have less room than the host, from whose memory the size of a block is chosen."""
    batches = [Batch(torch.full((100, 10), float(number)), torch.zeros(100), 100) for number in range(6)]
    facts = PassFacts((100,) * 6, tuple(map(quick_mark, batches)), "")
    stream = SampleStream(lambda: iter(batches), facts, 1e9, copied=False, join=None)
    (together,) = stream.blocks()
    apart = list(stream.in_blocks_of(2 * 4400).blocks())
    assert [len(block) for block in apart] == [2, 2, 2]
    assert len(list(stream.in_blocks_of(math.inf).blocks())) == 1
    for one, other in zip(together, [part for block in apart for part in block], strict=True):
        assert torch.equal(one.own_batches[0].inputs, other.own_batches[0].inputs)


def test_of_passes_copies_alone_are_made_for_each_use():
    """What is read is laid out, or moved, once for all points that are measured in the pass."""
    batch = Batch(torch.ones(100, 2), torch.zeros(100), 100)
    facts, counts = PassFacts((100,), (quick_mark(batch),), ""), {"laid out": 0, "copied": 0}

    def counted(name):
        def change(batch):
            counts[name] += 1
            return batch

        return change

    samples = read_samples((batch.inputs, batch.targets), MeasurementOptions())[0].head_of(
        SampleStream(lambda: iter([batch]), facts, 1e9, copied=False, join=None)
    )
    changed = samples.changed_on_use(counted("laid out")).changed_on_use(counted("copied"), copies=True)
    ((part,),) = changed.passes.blocks()
    for _ in range(3):
        list(part.batches(100))
    assert counts == {"laid out": 1, "copied": 3}


def test_changes_on_use_follow_each_other_wherever_batches_come_from():
    inputs = torch.arange(12.0).reshape(6, 2)
    samples = read_samples((inputs, torch.zeros(6)), MeasurementOptions())[0]

    def added(number):
        return lambda batch: Batch(batch.inputs * 10 + number, batch.targets, batch.size)

    changed = samples.changed_on_use(added(1)).changed_on_use(added(2), moves=True)
    assert changed.moved_on_use
    assert not samples.moved_on_use
    expected = inputs * 100 + 12
    for batches in (changed.own_batches, changed.batches(4), changed.map_targets(lambda targets: targets).batches(4)):
        assert torch.equal(torch.cat([batch.inputs for batch in batches]), expected)
    for side in zip(*changed.regrouped(), strict=True):
        assert torch.equal(torch.cat([batch.inputs for batches in side for batch in batches]), expected)
    assert changed.sha256(with_batches=True) == samples.sha256(with_batches=True)
    assert changed.nbytes == samples.nbytes


@pytest.mark.parametrize("sizes", [(8, 8), (8, 5), (8, 8, 8)])
def test_a_list_of_batches_that_are_dictionaries_is_no_pair(sizes):
    data = [{"x": torch.randn(size, 3), "labels": torch.arange(size)} for size in sizes]
    assert not is_pair_of_arrays(data)
    # A network may take, and be compared with, dictionaries.
    assert is_pair_of_arrays(tuple(data[:2]))
    assert is_pair_of_arrays([data[0], torch.arange(8)])


def test_packed_sequences_are_one_batch_for_the_network():
    packed = pack_sequence([torch.randn(length, 4) for length in (5, 2, 1)])
    samples, *_ = read_samples([(packed, torch.tensor([0, 1, 1]))], MeasurementOptions())
    (batch,) = samples.own_batches
    assert (batch.size, batch.can_be_cut) == (3, False)
    torch.testing.assert_close(batch.inputs.data, packed.data)
    assert batch.inputs.batch_sizes.tolist() == packed.batch_sizes.tolist()
    outputs, _ = nn.LSTM(4, 2)(batch.inputs)
    assert outputs.data.shape == (8, 2)
