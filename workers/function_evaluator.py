"""An evaluator of a plain function of named arrays, for whatever is not a network of a known framework."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.weight_space import State, WeightSpace, describe_arrays, move_along
from collectors.shapes import Float64
from collectors.validation import check_int, wrong_type

from .errors import CallbackFunctionError
from .evaluator import Evaluator, EvaluatorDescription
from .measurement_options import MeasurementOptions
from .measurement_plan import MeasurementPlan
from .measuring.checks import check_points
from .measuring.sample_loss import as_columns
from .measuring.totals import scalar
from .metric_names import check_metric_name


class FunctionEvaluator(Evaluator):
    """Measures a function of named arrays; return it from callback_fn.

    Example::

        def callback_fn():
            inputs, targets = load_data()

            def measure(weights):
                residuals = inputs @ weights["slope"] + weights["intercept"] - targets
                return {"loss": (residuals**2).mean(), "largest": abs(residuals).max()}

            return FunctionEvaluator(measure, {"slope": np.zeros(5), "intercept": np.zeros(1)})

    Args:
        function: takes name to array, for every name in ``arrays``, and returns the loss, or a dictionary of "loss",
            "loss_stderr" where it is known, and metrics; each a single number.
        arrays: arrays of the names, shapes and element types that the function takes; their values do not matter.
            Floating-point arrays are what a plane spans, all others are buffers. A ``WeightSpace`` (see
            ``describe_arrays``) says more.
        num_samples: over how many samples the function averages; stored with the landscape.
        samples: the data that the function uses; an interrupted landscape goes on only if they are the same.

    Raises:
        TypeError: an argument has the wrong type.
        CallbackFunctionError: the function raises, or returns something else, at the given arrays.
    """

    def __init__(
        self,
        function: Callable[[dict[str, NDArray[Any]]], float | Mapping[str, float]],
        arrays: State | WeightSpace,
        *,
        num_samples: int = 1,
        samples: Sequence[NDArray[Any]] = (),
    ) -> None:
        if not callable(function):
            raise wrong_type("function", "a function of a dictionary of arrays", function)
        if not isinstance(arrays, WeightSpace):
            if not isinstance(arrays, Mapping):
                raise wrong_type("arrays", "a mapping from name to array, or a WeightSpace", arrays)
            arrays = describe_arrays({key: np.asarray(value) for key, value in arrays.items()})
        self._function = function
        self._space = arrays
        self._axes: int | None = None
        ones = {info.name: np.ones(info.shape, info.dtype) for info in arrays.tensors}
        try:
            with np.errstate(all="ignore"):
                metrics = tuple(self._call(ones))
        except CallbackFunctionError:
            raise
        except Exception as error:
            raise CallbackFunctionError(
                f"the function of FunctionEvaluator cannot be evaluated at arrays of ones: {type(error).__name__}: "
                f"{error}"
            ) from error
        digest = hashlib.sha256()
        for array in samples:
            _add_to(digest, np.asarray(array))
        self._description = EvaluatorDescription(
            space=arrays,
            metrics=metrics,
            num_samples=check_int("num_samples", num_samples, minimum=1),
            samples_sha256=digest.hexdigest(),
            options=MeasurementOptions(),
            partition_dependent=False,
            plan=MeasurementPlan(),
            device="cpu",
        )

    @property
    def description(self) -> EvaluatorDescription:
        return self._description

    def load(
        self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State] = (), **_: Any
    ) -> None:
        self._origin = {info.name: np.array(origin[info.name]) for info in self._space.parameters}
        self._buffers = {info.name: np.array(buffers[info.name]) for info in self._space.buffers}
        self._between = BuffersBetween(self._space, self._buffers, end_buffers)
        self._directions = [dict(direction) for direction in directions]
        self._axes = len(directions)

    def measure(
        self, points: Float64[np.ndarray, "points axes"], **_: Any
    ) -> dict[str, Float64[np.ndarray, " points"]]:
        rows = []
        for coordinates in check_points(points, self._axes).tolist():
            moved = move_along(self._space, self._origin, self._directions, coordinates)
            moved |= self._between.at(coordinates)
            rows.append(self._values(self._copy({**self._origin, **self._buffers}) | moved))
        return as_columns(rows, self.description.metrics)

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        return self._values(self._copy({**parameters, **(self._buffers if buffers is None else buffers)}))

    def _copy(self, state: State) -> dict[str, NDArray[Any]]:
        # The function may keep or change what it is given.
        return {name: np.array(array) for name, array in state.items()}

    def _values(self, state: dict[str, NDArray[Any]]) -> dict[str, float]:
        values = self._call(state)
        if values.keys() != set(self.description.metrics):
            raise CallbackFunctionError(
                "the function of FunctionEvaluator must return the same names at all weights, but returned "
                f"{sorted(values)}, and {sorted(self.description.metrics)} at arrays of ones."
            )
        return values

    def _call(self, state: dict[str, NDArray[Any]]) -> dict[str, float]:
        result: Any = self._function(state)
        values = dict(result) if isinstance(result, Mapping) else {"loss": result}
        if "loss" not in values:
            raise CallbackFunctionError(
                f'the function of FunctionEvaluator must return "loss" among its values, but returned {sorted(values)}.'
            )
        return {
            name: float(scalar(name if name in ("loss", "loss_stderr") else check_metric_name(name), values[name]))
            for name in ("loss", *(name for name in values if name != "loss"))
        }


def _add_to(digest: Any, value: Any) -> None:
    """Adds what samples are to their digest: of an array of objects each of these, as it has but their addresses."""
    if not isinstance(value, np.ndarray):
        digest.update(repr(value).encode() if isinstance(value, str | int | float) else pickle.dumps(value))
    elif value.dtype.hasobject:
        digest.update(repr(value.shape).encode())
        for item in value.reshape(-1):
            _add_to(digest, item)
    else:
        digest.update(np.ascontiguousarray(value).tobytes())
