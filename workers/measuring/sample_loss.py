"""Losses as float64 sums over samples, so that batch size never changes a result: of all, each group, each sample."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import some_names
from collectors.shapes import Float32, Float64, Int64

from ..errors import CallbackFunctionError, SampleLossesError, SamplesError
from ..evaluator import KeptSamples
from ..metric_names import SAMPLE_LOSSES, name_in_group
from ..samples.batches import Batch, in_float64, is_array, is_tensor, on_host
from ..samples.data_sets import naming_set, note_of_set
from ..samples.samples import Samples
from .totals import Pending, Total, low_precision

_MOST_GROUPS = 1000


class SummedLoss(Total):
    """A loss with a reduction (mean, sum, batchmean), as float64 sums of each sample's numerator and denominator."""

    splits = True
    groups: SampleGroups | None = None  # whose losses are returned beside that of all
    keeps_samples = False  # whether each sample's loss is, too

    def __init__(self, reduction: str) -> None:
        self._reduction, self.is_sum = reduction, reduction == "sum"
        self.reset()

    def reset(self) -> None:
        self._numerators: list[Any] = []
        self._denominators: list[Any] = []
        self._has_stderr = True

    @property
    def sums(self) -> tuple[Any, Any]:
        """The numerators, float64, shape (samples,), and the denominators, or None for a sum, which has none."""
        return self._of_samples(*self._joined())

    def _joined(self) -> tuple[Any, Any]:
        return _concatenate(self._numerators), _concatenate(self._denominators)

    def _of_samples(self, numerators: Any, denominators: Any) -> tuple[Any, Any]:
        if not self._has_stderr:
            raise SampleLossesError(
                "groups and keep_samples need a loss that has a value for each sample, but its elements are not those "
                "of the samples; let outputs and targets keep the samples' axis first."
            )
        return numerators, None if self._reduction == "sum" else denominators

    def pending(self) -> Pending:
        """Returns the loss, its standard error, each group's loss, and the samples' losses."""
        joined = self._joined()
        weight, *values = mean_and_stderr(*joined, self._reduction)
        names = ["loss", *(["loss_stderr"] if self._has_stderr else [])]
        numbers = values[: len(names)] if self._reduction == "sum" else [weight, *values[: len(names)]]
        samples = {}
        if self.groups is not None or self.keeps_samples:
            sums = self._of_samples(*joined)
            if self.groups is not None:
                names += self.groups.names
                numbers.extend(self.groups.means(*sums))  # NumPy would add what += is to append
            if self.keeps_samples:
                samples[SAMPLE_LOSSES] = own_losses(*sums)
        return Pending(numbers, functools.partial(self._finish, names), samples)

    def _finish(self, names: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
        if self._reduction != "sum":
            weight, *numbers = numbers
            check_weight(weight)
        return dict(zip(names, numbers, strict=True))


@dataclass(eq=False)
class SampleLossTotal(SummedLoss):
    """A loss of (outputs, targets) whose reduction is off, so that it has elements."""

    elementwise: Callable[[Any, Any], Any]
    reduction: str
    class_weights: Any  # how much each class counts in the mean's denominator, shape (classes,)
    ignore_index: int | None
    known: bool = field(default=True, kw_only=True)  # a loss of the framework has no other meaning of its reduction

    def __post_init__(self) -> None:
        super().__init__(self.reduction)
        self.adds_up = self.known

    def add(self, outputs: Any, batch: Batch) -> None:
        elements = self.elementwise(outputs, batch.targets)
        if not is_array(elements) or elements.ndim == 0:
            raise ValueError("the loss has no elements although its reduction is off")
        self.low_precision = low_precision(elements)
        elements = in_float64(elements)
        counts = self._counts(elements, batch.targets)
        samples = len(elements)
        if samples != batch.size:
            # Outputs that were flattened over samples no longer tell which element belongs to which sample.
            self._has_stderr = False
            samples = 1
        self._numerators.append(elements.reshape(samples, -1).sum(1))
        denominators = counts.reshape(samples, -1).sum(1)
        if self._reduction == "batchmean":
            denominators = _ones_like(denominators) * (batch.size / samples)
        self._denominators.append(denominators)

    def differentiable(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        elements = in_float64(self.elementwise(outputs, batch.targets))
        if self._reduction == "sum":
            weight: Any = None
        elif self._reduction == "batchmean":
            weight = batch.size
        else:
            weight = self._counts(elements, batch.targets).sum()
        return elements.sum(), weight

    def _counts(self, elements: Any, targets: Any) -> Any:
        classes = is_array(targets) and "int" in str(targets.dtype) and targets.shape == elements.shape
        if not classes or self.ignore_index is None:
            return _ones_like(elements)
        # PyTorch takes an index of bytes for a mask, and among bytes -100 for 156.
        targets = targets.long() if is_tensor(targets) else targets.astype(np.int64)
        counted = targets != self.ignore_index
        if self.class_weights is None:
            return in_float64(counted)
        weights = self.class_weights.to(targets.device) if is_tensor(targets) else self.class_weights
        return in_float64(weights[targets * counted] * counted)


def mean_and_stderr(numerators: Any, denominators: Any, reduction: str = "mean") -> tuple[Any, Any, Any]:
    """Returns weight, mean, stderr (NaN for one sample) of numerators (..., samples), denominators (samples,)."""
    # Float64 arrays of NumPy, or tensors of PyTorch, whose device is not waited for.
    count = numerators.shape[-1]
    weight = 1.0 if reduction == "sum" else denominators.sum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a loss may be infinite or NaN, and stays so
        mean = numerators.sum(-1) / weight
        expected = numerators.mean(-1)[..., None] if reduction == "sum" else mean[..., None] * denominators
        squares = ((numerators - expected) ** 2).sum(-1)
        variance = squares / (count - 1) if count > 1 else squares * float("nan")
        spread = count * variance
        stderr = (spread.sqrt() if is_tensor(spread) else np.sqrt(spread)) / weight
    return weight, mean, stderr


def check_weight(weight: float) -> None:
    if weight == 0:
        raise SamplesError(
            "dataset must hold at least one target that counts, but every target is ignored (ignore_index) or has "
            "class weight zero; check the padding, or use other samples."
        )


@dataclass(frozen=True)
class SampleGroups:
    labels: tuple[int, ...]  # the groups' numbers, those of all data sets
    ids: Int64[np.ndarray, " n"]  # the place of each sample's group among the labels

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name_in_group("loss", label) for label in self.labels)

    def means(self, numerators: Any, denominators: Any) -> Any:
        """Returns groups' losses, (groups,), NaN without samples; of float64 (n,), denominators None for a sum."""
        parts = numerators, _ones_like(numerators) if denominators is None else denominators
        if is_tensor(numerators):
            ids = sys.modules["torch"].as_tensor(self.ids, device=numerators.device)
            empty = numerators.new_zeros(len(self.labels))
            sums = [empty.index_add(0, ids, part) for part in parts]
        else:
            sums = [np.bincount(self.ids, part, len(self.labels)) for part in parts]
        with np.errstate(invalid="ignore", divide="ignore"):
            if denominators is None:
                return sums[0] * (sums[1] / sums[1])  # NaN for no samples
            return sums[0] / sums[1]


def check_splits(loss: Total, option: str = "groups") -> None:
    """Checks that a loss has a value for each sample, which ``option`` needs."""
    if not loss.splits:
        raise SampleLossesError(
            f"{option} needs a loss that has a value for each sample, such as nn.CrossEntropyLoss, but this one gives "
            f"one number for a batch. Leave {option} out, or return a loss with a reduction attribute; a network that "
            "computes its own loss of a batch has none, so let it return outputs, and a loss function compare them."
        )


def find_groups(
    choice: str | Callable[[Any, Any], Any], sets: Mapping[str, Samples]
) -> tuple[list[SampleGroups], list[str], str]:
    """Returns the data sets' groups, notes, and a SHA-256 of all; ``choice`` gives a whole number for each sample."""
    ids_of_sets: list[NDArray[np.int64]] = []
    for name, samples in sets.items():
        with naming_set(name):
            ids_of_sets.append(np.concatenate([_ids_of(choice, batch) for batch in samples.own_batches]))
    labels = np.unique(np.concatenate(ids_of_sets))
    if len(labels) > _MOST_GROUPS:
        raise CallbackFunctionError(
            f"groups must be at most {_MOST_GROUPS}, each of which is a surface of its own, but there are "
            f"{len(labels)}. Join them with groups=a function of (inputs, targets)."
        )
    notes = []
    for (name, _), ids in zip(sets.items(), ids_of_sets, strict=True):
        absent = sorted(set(labels.tolist()) - set(ids.tolist()))
        if absent:
            text = f"there is no sample of the groups {some_names(absent, str)}, whose loss is NaN."
            notes.append(note_of_set(name, text))
    numbers = tuple(int(label) for label in labels)
    digest = hashlib.sha256(b"".join(ids.astype("<i8").tobytes() for ids in ids_of_sets)).hexdigest()
    return [SampleGroups(numbers, np.searchsorted(labels, ids)) for ids in ids_of_sets], notes, digest


def targets_of(batch: Batch) -> Any:
    """Returns a batch's targets, without the weights that Keras has beside them."""
    targets = batch.targets
    if isinstance(targets, Mapping) and set(targets) <= {"targets", "sample_weight"}:
        return targets["targets"]
    return targets


def whole_numbers(values: Any, batch: Batch) -> NDArray[np.int64] | None:
    """Returns one whole number for each of a batch's samples, shape (samples,); None where these are something else."""
    array = on_host(values)
    if array.dtype.kind not in "iub" or array.size != batch.size or array.ndim > 2:
        return None
    return array.reshape(-1).astype(np.int64)


def own_losses(numerators: Any, denominators: Any) -> Any:
    """Returns losses, (..., samples), NaN where one does not count; denominators, (samples,), are None for a sum."""
    if denominators is None:
        return numerators
    with np.errstate(invalid="ignore", divide="ignore"):
        return numerators / denominators


def as_kept(losses: Any) -> Float32[np.ndarray, "*_ samples"]:
    """Returns losses of samples in the form in which they are kept; what is too large for float32 becomes infinite."""
    with np.errstate(over="ignore"):
        return on_host(losses).astype(np.float32)


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
    kept = [(name.removeprefix(SAMPLE_LOSSES), column) for name, column in columns.items() if column.ndim > 1]
    return {name.removeprefix("@"): np.array(column[row]) for name, column in kept} or None


def describe_kept(
    name: str, samples: Samples, denominators: Float64[np.ndarray, " samples"] | None = None, *, is_sum: bool = False
) -> KeptSamples:
    """Returns what is known of a data set's samples at every point; a sum has no denominators."""
    numbers = [whole_numbers(targets_of(batch), batch) for batch in samples.own_batches]
    known = [item for item in numbers if item is not None]
    targets = np.concatenate(known).astype("<i8").tobytes() if len(known) == len(numbers) else b""
    weights = b""
    if denominators is not None and (denominators != denominators[0]).any():
        weights = denominators.astype("<f8").tobytes()
    return KeptSamples(name, samples.count, targets, weights, is_sum)


def _ids_of(choice: str | Callable[[Any, Any], Any], batch: Batch) -> NDArray[np.int64]:
    targets = targets_of(batch)
    if isinstance(choice, str):
        values, origin = targets, 'groups="target" needs targets that are'
    else:
        try:
            values, origin = choice(batch.inputs, targets), "the function groups must return"
        except Exception as error:
            raise CallbackFunctionError(f"the function groups raised {type(error).__name__}: {error}") from error
    numbers = whole_numbers(values, batch)
    if numbers is None:
        array = on_host(values)
        raise SamplesError(
            f"{origin} one whole number for each sample, but for {batch.size} samples got {array.dtype} of shape "
            f"{array.shape}."
        )
    return numbers


def _ones_like(array: Any) -> Any:
    return array.new_ones(array.shape) if is_tensor(array) else np.ones_like(array)


def _concatenate(parts: Sequence[Any]) -> Any:
    return sys.modules["torch"].cat(parts) if is_tensor(parts[0]) else np.concatenate(parts)
