"""The exchange of recorded factors between the processes of a distributed training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..validation import check_int, wrong_type, wrong_value
from .factors import Observation
from .recorded import weight_of

# The sums, how many calls they are of, and how many samples the loss averages.
Recorded = tuple[Observation, float, float]


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
    layers: list[tuple[nn.Module, Recorded | None]],
    shapes: list[tuple[torch.Size, torch.Size]],
    last_of_bucket: list[int],
    group: Any = None,
) -> dict[nn.Module, Recorded]:
    """Returns, summed over all processes, what was recorded of a mean loss, with G of each sample's own loss."""
    normal = [(layer, None if recorded is None else of_samples(*recorded)) for layer, recorded in layers]
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1):
        return {layer: recorded for layer, recorded in normal if recorded is not None}
    found: dict[nn.Module, Recorded] = {}
    first = 0
    for last in last_of_bucket:
        found.update(_summed(normal[first : last + 1], shapes[first : last + 1], group))
        first = last + 1
    return found


def of_samples(seen: Observation, calls: float, batch: float) -> Recorded:
    """Returns what was recorded with G of each sample's own loss instead of the batch's mean loss."""
    scaled = Observation(seen.a, seen.g * batch**2, seen.a_weight, seen.g_weight, seen.samples)
    return scaled, calls, batch


def _summed(
    layers: list[tuple[nn.Module, Recorded | None]], shapes: list[tuple[torch.Size, torch.Size]], group: Any
) -> dict[nn.Module, Recorded]:
    """Returns the sums over all processes; a process without recordings of a layer takes part with zeros."""
    if not layers:
        return {}
    weight = weight_of(layers[0][0])
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    parts: list[torch.Tensor] = []
    sums: list[list[float]] = []
    for (_, recorded), (a_shape, g_shape) in zip(layers, shapes, strict=True):
        if recorded is None:
            parts += [torch.zeros(shape, dtype=dtype, device=weight.device).flatten() for shape in (a_shape, g_shape)]
            sums.append([0.0] * 5)
        else:
            seen, calls, batch = recorded
            parts += [seen.a.to(dtype).flatten(), seen.g.to(dtype).flatten()]
            sums.append([seen.a_weight, seen.g_weight, seen.samples, calls, batch])
    flat = torch.cat(parts)
    numbers = torch.tensor(sums, dtype=torch.float64, device=weight.device)
    dist.all_reduce(flat, group=group)
    dist.all_reduce(numbers, group=group)
    found: dict[nn.Module, Recorded] = {}
    place = 0
    for (layer, _), (a_shape, g_shape), row in zip(layers, shapes, numbers.tolist(), strict=True):
        pieces = []
        for shape in (a_shape, g_shape):
            size = shape.numel()
            pieces.append(flat[place : place + size].view(shape))
            place += size
        a_weight, g_weight, samples, calls, batch = row
        if calls:
            found[layer] = (Observation(pieces[0], pieces[1], a_weight, g_weight, samples), calls, batch)
    return found
