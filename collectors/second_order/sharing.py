"""The exchange of recorded factors between the processes of a distributed training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..validation import check_int, wrong_type, wrong_value
from .factors import Observation, weight_of


def checked_split(split_indices: Iterable[int] | None, layers: int) -> list[int]:
    """Returns the index of the last layer of each bucket, that of the last layer of all included."""
    last = layers - 1
    if split_indices is None:
        return [last]
    if isinstance(split_indices, str | bytes) or not isinstance(split_indices, Iterable):
        raise wrong_type("split_indices", "a list of layers' indices or None", split_indices)
    given = [
        check_int(f"split_indices[{place}]", index, minimum=0, maximum=last)
        for place, index in enumerate(split_indices)
    ]
    if any(second <= first for first, second in itertools.pairwise(given)):
        raise wrong_value("split_indices", "indices that grow", given)
    return given if given and given[-1] == last else [*given, last]


def process_group(network: nn.Module) -> Any:
    return network.process_group if isinstance(network, nn.parallel.DistributedDataParallel) else None


def exchange(
    recorded: Mapping[nn.Module, Observation | None],
    shapes: Mapping[nn.Module, tuple[torch.Size, torch.Size]],
    last_of_bucket: list[int],
    group: Any = None,
) -> dict[nn.Module, Observation]:
    """Returns the sums over all processes of what layers recorded, with G of each sample's own loss."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1):
        return {layer: seen for layer, seen in recorded.items() if seen is not None}
    found: dict[nn.Module, Observation] = {}
    for first, end in itertools.pairwise([0, *(last + 1 for last in last_of_bucket)]):
        found.update(_summed(dict(itertools.islice(recorded.items(), first, end)), shapes, group))
    return found


def _summed(
    recorded: Mapping[nn.Module, Observation | None],
    shapes: Mapping[nn.Module, tuple[torch.Size, torch.Size]],
    group: Any,
) -> dict[nn.Module, Observation]:
    """Returns the sums over all processes; a process without recordings of a layer takes part with zeros."""
    if not recorded:
        return {}
    weight = weight_of(next(iter(recorded)))
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    parts: list[torch.Tensor] = []
    sums: list[list[float]] = []
    for layer, seen in recorded.items():
        if seen is None:
            parts += [torch.zeros(shape, dtype=dtype, device=weight.device).flatten() for shape in shapes[layer]]
            sums.append([0.0] * 5)
        else:
            parts += [seen.a.to(dtype).flatten(), seen.g.to(dtype).flatten()]
            sums.append([seen.a_weight, seen.g_weight, seen.samples, seen.calls, seen.batch])
    flat = torch.cat(parts)
    numbers = torch.tensor(sums, dtype=torch.float64, device=weight.device)
    dist.all_reduce(flat, group=group)
    dist.all_reduce(numbers, group=group)
    pieces = iter(flat.split_with_sizes([part.numel() for part in parts]))
    found = {}
    for layer, (a_weight, g_weight, samples, calls, batch) in zip(recorded, numbers.tolist(), strict=True):
        a, g = (next(pieces).view(shape) for shape in shapes[layer])
        if calls:
            found[layer] = Observation(a, g, a_weight, g_weight, samples, calls, batch)
    return found
