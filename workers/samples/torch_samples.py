"""The fixed set of samples that every point is measured on (PyTorch)."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from collectors.networks.batches import map_leaves

from ..errors import SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from .batches import Batch, MakeBatch, as_batch, float64_device, map_batch, same_leaves
from .samples import Samples
from .sources import SampleSource, Stream, indexed_source, read_source, stream_source
from .torch_samplers import own_iteration, visited_indices

_CHECKED_TWICE = 16
_OF_PROCESSES = ("num_workers", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "timeout")
_BATCH_SIZE = 128
_LAID_OUT_AT_ONCE = 1 << 28  # bytes
# Of a GPU's free memory. The network needs some for a batch, and a plane for its directions.
_ROOM_SHARE = 0.75
_PASS_SHARE = 0.25


def place_samples(
    samples: Samples, device: torch.device, channels_last: bool = False, targets: torch.device | None = None
) -> Samples:
    """Returns the samples on a device, images channels-last where asked; targets may go to another one."""

    def to(place: torch.device, value: Any) -> Any:
        return map_leaves(lambda leaf: _on(place, leaf) if isinstance(leaf, torch.Tensor) else leaf, value)

    def move(batch: Batch) -> Batch:
        return replace(batch, inputs=to(device, batch.inputs), targets=to(targets or device, batch.targets))

    # Samples for which a device has no room stay on the host, and are moved each time they are used.
    if not samples.moved_on_use:
        samples = _moved(samples, move, device)
    if not channels_last:
        return samples
    lay_out = functools.partial(map_batch, _lay_out)
    # On the host all workers share the ones that were read, and a second copy of many may not fit.
    many = device.type == "cpu" and samples.nbytes > _LAID_OUT_AT_ONCE
    if not many and not samples.moved_on_use:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            return samples.map_batches(lay_out)
    return samples.changed_on_use(lay_out)


def _on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype in (torch.float64, torch.complex128) and float64_device(device) != device:
        raise SamplesError(
            f"dataset must give float32 on {device}, which has no float64, but gave "
            f"{str(tensor.dtype).removeprefix('torch.')}; convert it, or measure on the CPU (device_ids=[0])."
        )
    return tensor.to(device)


def moved_on_use_note(samples: Samples, device: torch.device) -> str:
    """Returns what the user should know of samples that stay on the host, or ""."""
    if not samples.moved_on_use:
        return ""
    return (
        f"the samples ({samples.nbytes / 1e9:.2g} GB) do not fit on {device} beside the network, so their batches are "
        "moved there at each point, which takes time. Fewer samples (num_samples) are moved once."
    )


def _moved(samples: Samples, move: Callable[[Batch], Batch], device: torch.device) -> Samples:
    room = math.inf  # other devices than GPUs say so when memory runs out
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        room = free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if samples.passes is not None:
        samples = samples.head_of(samples.passes.in_blocks_of(_PASS_SHARE * room))
    if samples.nbytes_where(lambda leaf: getattr(leaf, "device", None) != device) <= _ROOM_SHARE * room:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            return samples.map_batches(move)
    return samples.changed_on_use(move, moves=True)


def _lay_out(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.ndim != 4:
        return leaf
    # With one channel every layout looks contiguous to PyTorch; only the strides say which one is meant.
    return torch.empty_like(leaf, memory_format=torch.channels_last).copy_(leaf)


def read_samples(
    dataset: object,
    options: MeasurementOptions,
    make_batch: MakeBatch = as_batch,
    memory: SampleMemory = SampleMemory(),  # noqa: B008
) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order, however a loader shuffles; returns notes for the user too."""
    notes: list[str] = []
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and all(isinstance(x, torch.Tensor) for x in dataset):
        if len(dataset[0]) != len(dataset[1]):
            raise SamplesError(
                f"dataset must hold as many targets as inputs, but got {len(dataset[0])} inputs and "
                f"{len(dataset[1])} targets."
            )
        dataset = TensorDataset(*dataset)
    if isinstance(dataset, DataLoader) and not isinstance(dataset.dataset, IterableDataset):
        loader = dataset
        own = own_iteration(_with_own_generator(loader), make_batch, notes)
        if own is not None:
            source = stream_source(own, options, make_batch=make_batch)
        elif loader.batch_size is None and loader.batch_sampler is None:
            # Automatic batching is off: each item of the data set is a batch of its own.
            indices = _indices(loader.dataset, visited_indices(loader, None, notes))
            items = Stream(lambda: (loader.collate_fn(loader.dataset[index]) for index in indices), indices)
            source = stream_source(items, options, make_batch=make_batch)
        else:
            visited = visited_indices(loader, options.count, notes)
            source = _indexed_source(loader.dataset, visited, options, notes, make_batch, loader)
    elif isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset):
        source = _indexed_source(dataset, None, options, notes, make_batch)
    else:
        batches: Any = _with_own_generator(dataset)
        if is_single := isinstance(dataset, IterableDataset):
            batches = DataLoader(dataset, batch_size=_BATCH_SIZE)
        source = stream_source(batches, options, make_batch=make_batch, without_batches=is_single)
    return read_source(source, options, notes, memory), notes


def _with_own_generator(batches: Any) -> Any:
    """Returns a loader that does not draw from the user's generator, or any other batches as they are."""
    if not isinstance(batches, DataLoader) or batches.generator is None:
        return batches
    loader = copy.copy(batches)
    loader.generator = torch.Generator().set_state(batches.generator.get_state())
    return loader


def _indices(dataset: Any, subset: Sequence[int] | None) -> list[int]:
    try:
        return list(range(len(dataset))) if subset is None else sorted(subset)
    except TypeError as error:
        raise TypeError(
            f"dataset must have a length to be read by index, but {type(dataset).__name__} has none."
        ) from error


def _indexed_source(
    dataset: Any,
    subset: Sequence[int] | None,
    options: MeasurementOptions,
    notes: list[str],
    make_batch: MakeBatch,
    loader: DataLoader[Any] | None = None,
) -> SampleSource:
    collate = default_collate if loader is None else loader.collate_fn
    # A sampler of the user's own may decide how many samples are in a batch.
    size = None if loader is None else getattr(loader.batch_sampler, "batch_size", None)
    batch_size = size if isinstance(size, int) else None

    def read(some: Sequence[int]) -> Any:
        return collate([dataset[index] for index in some])

    def read_all(parts: Sequence[Sequence[int]]) -> Iterator[Any]:
        assert loader is not None
        settings: dict[str, Any] = {name: getattr(loader, name) for name in _OF_PROCESSES}
        settings["generator"] = torch.Generator()  # the process's own must not move
        batches = [list(part) for part in parts]
        in_processes = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Got pickle error")
            try:
                return iter(in_processes)
            except (pickle.PicklingError, AttributeError, TypeError):  # by which kind of thing cannot be pickled
                return map(read, parts)  # a process that is not forked knows nothing of a worker's copy of a script

    source = indexed_source(
        read,
        _indices(dataset, subset),
        batch_size or _BATCH_SIZE,
        options,
        notes,
        make_batch=make_batch,
        without_batches=batch_size is None,
        read_all=read_all if loader is not None and loader.num_workers else None,
    )
    _check_repeatable(read, source.first[:_CHECKED_TWICE])
    return source


def _check_repeatable(read: Callable[[Sequence[int]], Any], indices: Sequence[int]) -> None:
    # Collated, because samples may be objects (images, texts) that only collate_fn turns into tensors.
    if not same_leaves(read(indices), read(indices)):
        changed = [index for index in indices if not same_leaves(read([index]), read([index]))]
        shown = f"sample {changed[0]}" if changed else "its first batch"
        raise SamplesError(
            f"dataset must give the same sample each time, but {shown} changed between two reads. Switch random "
            "augmentation off for the landscape (use the test transform)."
        )
