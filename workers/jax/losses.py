"""Losses and metrics that are computed inside a jitted function, many points at once, and added up outside."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ..errors import CallbackFunctionError
from ..measuring.measured_set import MeasuredSet
from ..measuring.sample_loss import as_kept, mean_and_stderr, own_losses
from ..measuring.totals import Pending, Total, check_metrics, low_precision, metric_error
from ..metric_names import SAMPLE_LOSSES
from ..samples.batches import Batch

Function: TypeAlias = Callable[[Any, Any], Any]
Part: TypeAlias = dict[str, NDArray[Any]]
"""What ``inside`` returned for one batch, every array with one axis more, of the points, in front."""


class JaxTotal(Total):
    """A loss or a metric, in two halves: one traced by ``jax.jit`` (``inside``), the other in NumPy (``columns``)."""

    def __init__(self, key: str, name: str, function: Function) -> None:
        self.key, self.name, self._function = key, name, function
        self.reset()

    @abstractmethod
    def inside(self, outputs: Any, targets: Any) -> dict[str, jax.Array]:
        """Returns what is known of one batch at one point; it is traced."""

    @abstractmethod
    def columns(
        self, parts: Sequence[Part], sizes: Sequence[int], item: MeasuredSet | None = None
    ) -> dict[str, NDArray[Any]]:
        """Returns the results at every point, from the parts of all batches and their numbers of samples."""

    @abstractmethod
    def numerator(self, outputs: Any, targets: Any, size: Any) -> tuple[jax.Array, jax.Array]:
        """Returns the sum and weight of a batch of ``size`` samples, as ``Total.differentiable`` does; it is traced."""

    def reset(self) -> None:
        self._parts: list[Part] = []
        self._sizes: list[int] = []

    def add(self, outputs: Any, batch: Batch) -> None:
        # The outputs are not the network's, but what ``inside`` returned for every total, by key.
        self._parts.append({key: np.asarray(value)[None] for key, value in outputs[self.key].items()})
        self._sizes.append(batch.size)

    def pending(self) -> Pending:
        columns = self.columns(self._parts, self._sizes)
        return Pending.of({name: float(column[0]) for name, column in columns.items()})


class BatchTotal(JaxTotal):
    """The mean over batches, weighted by samples, of a function that returns one number for a batch."""

    adds_up = False

    def inside(self, outputs: Any, targets: Any) -> dict[str, jax.Array]:
        return {"value": jnp.reshape(self._function(outputs, targets), ())}

    def numerator(self, outputs: Any, targets: Any, size: Any) -> tuple[jax.Array, jax.Array]:
        return self.inside(outputs, targets)["value"] * size, size

    def columns(
        self, parts: Sequence[Part], sizes: Sequence[int], item: MeasuredSet | None = None
    ) -> dict[str, NDArray[Any]]:
        values = np.stack([part["value"].astype(np.float64) for part in parts], axis=1)
        return {self.name: values @ np.array(sizes, np.float64) / sum(sizes)}


class SampleTotal(JaxTotal):
    """The mean over all elements of a function that returns, for a batch, an array whose first axis is the samples'."""

    adds_up = True
    splits = True

    def inside(self, outputs: Any, targets: Any) -> dict[str, jax.Array]:
        """Returns each sample's sum, and the number of elements in it."""
        elements = self._elements(outputs, targets)
        wide = jnp.promote_types(elements.dtype, jnp.float32)
        samples = len(elements)
        sums = elements.astype(wide).reshape(samples, -1).sum(1)
        return {"sums": sums, "count": jnp.asarray(elements.size / samples, wide)}

    def numerator(self, outputs: Any, targets: Any, size: Any) -> tuple[jax.Array, jax.Array]:
        parts = self.inside(outputs, targets)
        return parts["sums"].sum(), parts["count"] * size

    def columns(
        self, parts: Sequence[Part], sizes: Sequence[int], item: MeasuredSet | None = None
    ) -> dict[str, NDArray[Any]]:
        """Returns the mean, and of a loss its standard error over samples, and its groups' and its samples' losses."""
        sums, counts = self.sample_sums(parts, sizes)
        _, mean, stderr = mean_and_stderr(sums, counts)
        columns: dict[str, NDArray[Any]] = {self.name: mean}
        if self.name != "loss":
            return columns
        columns["loss_stderr"] = stderr
        if item is not None and item.groups is not None:
            means = np.stack([item.groups.means(row, counts) for row in sums])
            columns |= {name: means[:, place] for place, name in enumerate(item.groups.names)}
        if item is not None and item.keeps_samples:
            columns[SAMPLE_LOSSES] = as_kept(own_losses(sums, counts))
        return columns

    def sample_sums(self, parts: Sequence[Part], sizes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns each sample's sum at every point, shape (points, samples), and its number of elements, (samples,)."""
        sums = np.concatenate([part["sums"].astype(np.float64) for part in parts], axis=1)
        return sums, np.repeat(np.array([part["count"][0] for part in parts], np.float64), sizes)

    def _elements(self, outputs: Any, targets: Any) -> jax.Array:
        return jnp.asarray(self._function(outputs, targets))


class SingleSampleTotal(SampleTotal):
    """The mean over samples of a function that returns one number for a batch, called with single samples."""

    adds_up = False  # the function may weigh its samples

    def _elements(self, outputs: Any, targets: Any) -> jax.Array:
        def of_one(output: Any, target: Any) -> Any:
            batch = jax.tree.map(lambda leaf: leaf[None], (output, target))
            return jnp.reshape(self._function(*batch), ())

        return jax.vmap(of_one)(outputs, targets)


def find_metrics(metrics: object) -> dict[str, Function]:
    """Returns functions of (outputs, targets) by name; CallbackFunctionError where the metrics are no such dict."""
    functions = check_metrics(metrics, "function of outputs and targets")
    for name, metric in functions.items():
        if not callable(metric) or isinstance(metric, type):
            raise CallbackFunctionError(f"metric {name!r} must be a function of (outputs, targets), but is {metric!r}.")
    return functions


def make_totals(
    loss: Function, metrics: Mapping[str, Function], outputs: Any, batch: Batch
) -> tuple[list[JaxTotal], dict[str, JaxTotal]]:
    """Returns the loss as it is and, where that is of use, by single samples; and metrics. Outputs may be shapes."""
    candidates = [_make_total("loss", "loss", loss, "the loss", outputs, batch)]
    if isinstance(candidates[0], BatchTotal):
        split = SingleSampleTotal("loss by samples", "loss", loss)
        split.low_precision = candidates[0].low_precision
        with contextlib.suppress(Exception):  # where it needs a batch as it is
            jax.eval_shape(split.inside, outputs, batch.targets)
            candidates.append(split)
    totals = {
        name: _make_total(f"metric {name}", name, _named(name, metric), f"metric {name!r}", outputs, batch)
        for name, metric in metrics.items()
    }
    return candidates, totals


def _named(name: str, metric: Function) -> Function:
    def call(outputs: Any, targets: Any) -> Any:
        try:
            return metric(outputs, targets)
        except jax.errors.JAXTypeError:
            raise  # whoever traces it says what cannot be compiled
        except Exception as error:
            raise metric_error(f"metric {name!r}", error) from error

    return call


def _make_total(key: str, name: str, function: Function, label: str, outputs: Any, batch: Batch) -> JaxTotal:
    try:
        result = jax.eval_shape(lambda *values: jnp.asarray(function(*values)), outputs, batch.targets)
    except jax.errors.JAXTypeError as error:
        raise CallbackFunctionError(
            f"{label} cannot be compiled by jax.jit, because it needs the values of its arrays; write it with "
            f"jax.numpy, without float(), NumPy or branches on values: {error}"
        ) from error
    if result.ndim and result.shape[0] == batch.size:
        total: JaxTotal = SampleTotal(key, name, function)
    elif result.size == 1:
        total = BatchTotal(key, name, function)
    else:
        raise CallbackFunctionError(
            f"{label} must be a single number for a batch or an array with an entry for each of the batch's "
            f"{batch.size} samples, but has the shape {result.shape}."
        )
    total.low_precision = low_precision(result)
    return total
