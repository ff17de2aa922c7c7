"""What was looked at, in sentences: the run, which samples are read, how they count, which weights and buffers move."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collectors.networks.batches import leaves, length_of
from collectors.networks.weight_space import WeightSpace, some_names
from collectors.run_directory.directory import RunDirectory
from collectors.summary.recorded_values import RecordedTraining

from .diagnosis import Fact
from .measuring import Comparison, MeasuredRun, sample_counts

_MEANINGS = {
    "fixed": "each checkpoint has its own; on a plane they are those of its origin",
    "recalibrate": "statistics of normalization layers are computed anew at each point",
}

# How many times as high as logged a loss may be unnoticed before check says so.
_WIDE = 2.0


def run_facts(run: RunDirectory, there: Sequence[int], numbers: Sequence[int]) -> Iterator[Fact]:
    unit = run.settings.unit
    yield Fact("run", f"{run.path} has {len(there)} checkpoints; looked at: {unit}s {', '.join(map(str, numbers))}.")
    wanted = tuple(dict.fromkeys(number for interval in run.settings.intervals for number in interval))
    if missing := run.missing(wanted):
        yield Fact("run", f"no checkpoints of {unit}s {some_names(missing)}; landscapes are drawn without them.")


def network_facts(space: WeightSpace, buffers: str) -> Iterator[Fact]:
    frozen = [tensor.name for tensor in space.parameters if not tensor.trainable]
    still = f" Frozen, so that no plane moves them: {some_names(frozen)}." if frozen else ""
    yield Fact("network", f"{space.network} has {space.dimension:,} weights that planes move.{still}")
    if space.buffers:
        names = some_names([tensor.name for tensor in space.buffers])
        yield Fact("network", f"buffers: {names}; {_MEANINGS.get(buffers, buffers)}.")
    shared = [" = ".join((tensor.name, *tensor.aliases)) for tensor in space.tensors if tensor.aliases]
    if shared:
        yield Fact("network", f"shared weights, which move as one: {'; '.join(shared)}.")


def sample_facts(measured: MeasuredRun, result: Any) -> Iterator[Fact]:
    description, options = measured.description, measured.description.options
    how = "the first in the data set's order" if options.samples == "first" else f"random, seed {options.seed}"
    wanted = options.num_samples
    for place, (name, count) in enumerate(sample_counts(description)):
        there = samples_in(data_set_of(result, name))
        of = f" of {there:,}" if there else ""
        asked = wanted.get(name) if isinstance(wanted, Mapping) else wanted
        if there == count:
            which = ", which are all"
        elif asked == count:
            which = f" ({how})"
        else:
            which = " (those that its loader visits)" if there else ""
        main = " It is the main data set." if name and not place else ""
        yield Fact("samples", f"{repr(name) + ': ' if name else ''}{count:,}{of} are read{which}.{main}")
    mean = "a mean over the samples"
    if measured.is_sum:
        mean = "a sum over the samples, so that it is larger the more of them are read"
    elif measured.belongs_to_batches:
        mean = "it belongs to its batches, which are kept as the data set gives them"
    elif measured.weights is not None:
        low, high = float(np.min(measured.weights)), float(np.max(measured.weights))
        mean += ", all count alike" if low == high else f", which count from {low:g} to {high:g} each"
    yield Fact("loss", f"{mean}.")
    yield from (Fact("samples", note) for note in description.notes)


def logged_facts(compared: Comparison | None, training: RecordedTraining, unit: str) -> Iterator[Fact]:
    if not (count := len(training.losses)):
        texts = [
            "none can be read (the run logged none, lies behind a URL, or TensorBoard is missing), so the measured "
            "losses were compared with nothing: another data set, normalization or loss cannot be noticed."
        ]
    elif compared is None or not compared.decides:
        texts = [
            f"{count} were logged, which is too few, or they belong to no two checkpoints with a finite loss, or are "
            "sums over batches whose size nobody recorded: check cannot tell whether this is the loss that was trained."
        ]
    else:
        of_set = f"on {compared.data_set!r}, " if compared.data_set else ""
        texts = [f"{of_set}{row.text(unit)}." for row in compared.trained]
        if compared.data_set:
            texts.append(
                "those of the main data set, which pictures show first, do not fit: as it should be if training never "
                f"had its samples, but those of {compared.data_set!r}."
            )
        if compared.fits and _WIDE <= compared.least_factor < math.inf:
            times = f"{compared.least_factor:.2g}"
            texts.append(f"these ranges are wide: a loss up to {times} times as high as logged would not be noticed.")
        if compared.is_lower:
            texts.append(
                "the measured losses are lower. Dropout, augmentation, smoothed labels or a penalty in the training's "
                "loss do that, and so do other samples or another loss: check cannot tell which it is."
            )
    yield from (Fact("logged losses", text) for text in texts)


def data_set_of(result: Any, name: str) -> Any:
    data = result[2] if isinstance(result, tuple | list) and len(result) == 4 else None
    return data.get(name) if name and isinstance(data, Mapping) else data


def loss_of(result: Any) -> Any:
    return getattr(result[0], "loss_fn", result[0]) if isinstance(result, tuple | list) and len(result) == 4 else None


def samples_in(data: Any) -> int | None:
    """Returns how many samples a data set has; None where it does not say, or says how many batches it has."""
    if isinstance(data, tuple | list):
        # A list of batches has pairs.
        is_pair = len(data) == 2 and hasattr(data[1], "shape")
        return next((len(leaf) for leaf in leaves(data) if getattr(leaf, "shape", ())), None) if is_pair else None
    if hasattr(data, "batch_sampler"):  # of a DataLoader; where it has none, its data set has batches
        return None if data.batch_sampler is None else length_of(data.dataset)
    of_torch = sys.modules.get("torch.utils.data")
    return length_of(data) if of_torch is not None and isinstance(data, of_torch.Dataset) else None
