"""The loss of each sample and of each group at a point, from the sums that the loss of all is made of anyway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..metric_names import SAMPLE_LOSSES
from ..sample_losses import KeptSamples
from ..samples.batches import Batch, is_tensor
from ..samples.samples import Samples
from .groups import SampleGroups, targets_of, whole_numbers
from .sample_loss import SummedLoss
from .totals import Pending, Total

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64


class DetailedLoss(Total):
    """A loss, beside it that of each group of the samples, and of each sample; all are added between two resets."""

    splits = True

    def __init__(self, loss: SummedLoss, groups: SampleGroups | None, *, keeps_samples: bool) -> None:
        self._loss, self._groups, self._keeps_samples = loss, groups, keeps_samples
        self.adds_up = loss.adds_up

    def reset(self) -> None:
        self._loss.reset()

    def add(self, outputs: Any, batch: Batch) -> None:
        self._loss.add(outputs, batch)

    def pending(self) -> Pending:
        """Returns the loss, its standard error, each group's loss, and the samples' losses."""
        whole, groups = self._loss.pending(), self._groups
        if groups is not None:
            numbers, finish_loss, count = whole.numbers, whole.finish, len(whole.numbers)

            def finish(values: Sequence[float]) -> dict[str, float]:
                of_groups = (float(value) for value in values[count:])
                return {**finish_loss(values[:count]), **dict(zip(groups.names, of_groups, strict=True))}

            whole = Pending([*numbers, *groups.means(*self._loss.sums)], finish)
        return replace(whole, samples={SAMPLE_LOSSES: own_losses(*self._loss.sums)}) if self._keeps_samples else whole


def own_losses(numerators: Any, denominators: Any) -> Any:
    """Returns losses, (..., samples), NaN where one does not count; denominators, (samples,), are None for a sum."""
    if denominators is None:
        return numerators
    with np.errstate(invalid="ignore", divide="ignore"):
        return numerators / denominators


def as_kept(losses: Any) -> Float32[np.ndarray, "*_ samples"]:
    """Returns losses of samples in the form in which they are kept; what is too large for float32 becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(losses.cpu() if is_tensor(losses) else losses).astype(np.float32)


def as_columns(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Returns metrics by name, a value for each point, and the losses of samples, a row for each point."""
    columns = {name: np.array([row[name] for row in rows], np.float64) for name in metrics}
    kept = [name for name, value in (rows[0] if rows else {}).items() if np.ndim(value)]
    return {**columns, **{name: np.stack([as_kept(row[name]) for row in rows]) for name in kept}}


def values_at(columns: Mapping[str, NDArray[Any]], row: int) -> dict[str, float]:
    """Returns the metrics of one point: a row of the columns that an evaluator returned."""
    return {name: float(column[row]) for name, column in columns.items() if column.ndim == 1}


def samples_at(columns: Mapping[str, NDArray[Any]], row: int) -> dict[str, Float32[np.ndarray, " samples"]] | None:
    """Returns the losses of each set's samples at one point, by the set's name; None where none are kept."""
    losses = {_set_of(name): np.array(column[row]) for name, column in columns.items() if column.ndim > 1}
    return losses or None


def describe_kept(
    name: str, samples: Samples, denominators: Float64[np.ndarray, " samples"] | None = None
) -> KeptSamples:
    """Returns what is known of a data set's samples at every point; no denominators: not known yet, or no mean."""
    numbers = [whole_numbers(targets_of(batch), batch) for batch in samples.own_batches]
    targets = b"" if any(item is None for item in numbers) else _bytes(item for item in numbers if item is not None)
    weights = b""
    if denominators is not None and (denominators != denominators[0]).any():
        weights = denominators.astype("<f8").tobytes()
    return KeptSamples(name, samples.count, targets, weights)


def _bytes(parts: Iterable[NDArray[np.int64]]) -> bytes:
    return np.concatenate([*parts]).astype("<i8").tobytes()


def _set_of(name: str) -> str:
    return name.removeprefix(SAMPLE_LOSSES).removeprefix("@")
