"""Losses as float64 sums over samples, so that batch size never changes a result, and their standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import CallbackFunctionError, SamplesError
from ..samples.batches import Batch, in_float64, is_array, is_tensor
from .totals import Pending, Total, low_precision

if TYPE_CHECKING:
    from jaxtyping import Float64


class SummedLoss(Total):
    """A loss with a reduction (mean, sum, batchmean), as float64 sums of each sample's numerator and denominator."""

    splits = True

    def __init__(self, reduction: str) -> None:
        self._reduction = reduction
        self.reset()

    def reset(self) -> None:
        self._numerators: list[Any] = []
        self._denominators: list[Any] = []
        self._has_stderr = True

    @property
    def sums(self) -> tuple[Any, Any]:
        """The numerators, float64, shape (samples,), and the denominators, or None for a sum, which has none."""
        if not self._has_stderr:
            raise CallbackFunctionError(
                "groups and keep_samples need a loss that has a value for each sample, but its elements are not those "
                "of the samples; let outputs and targets keep the samples' axis first."
            )
        denominators = None if self._reduction == "sum" else _concatenate(self._denominators)
        return _concatenate(self._numerators), denominators

    def pending(self) -> Pending:
        weight, mean, stderr = mean_and_stderr(
            _concatenate(self._numerators), _concatenate(self._denominators), self._reduction
        )
        values = [mean, stderr] if self._has_stderr else [mean]
        return Pending(values if self._reduction == "sum" else [weight, *values], self._finish)

    def _finish(self, numbers: Sequence[float]) -> dict[str, float]:
        if self._reduction != "sum":
            weight, *numbers = numbers
            check_weight(weight)
        return dict(zip(("loss", "loss_stderr"), numbers, strict=False))


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
        counted = targets != self.ignore_index
        if self.class_weights is None:
            return in_float64(counted)
        weights = self.class_weights.to(targets.device) if is_tensor(targets) else self.class_weights
        return in_float64(weights[targets * counted] * counted)


def mean_over_samples(
    numerators: Float64[np.ndarray, " samples"],
    denominators: Float64[np.ndarray, " samples"],
    reduction: str = "mean",
    *,
    with_stderr: bool = True,
) -> dict[str, float]:
    """Returns the loss, a mean (sum over sum) or a sum, and its standard error where an entry is a sample."""
    if reduction != "sum":
        check_weight(float(denominators.sum()))
    _, mean, stderr = mean_and_stderr(numerators, denominators, reduction)
    return {"loss": float(mean), "loss_stderr": float(stderr)} if with_stderr else {"loss": float(mean)}


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
    """Checks that some target counts."""
    if weight == 0:
        raise SamplesError(
            "dataset must hold at least one target that counts, but every target is ignored (ignore_index) or has "
            "class weight zero; check the padding, or use other samples."
        )


def _ones_like(array: Any) -> Any:
    return array.new_ones(array.shape) if is_tensor(array) else np.ones_like(array)


def _concatenate(parts: Sequence[Any]) -> Any:
    return sys.modules["torch"].cat(parts) if is_tensor(parts[0]) else np.concatenate(parts)
