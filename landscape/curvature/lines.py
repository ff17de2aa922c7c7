"""The trace of a Hessian from losses alone, for whatever has no second derivatives: second differences along lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from collectors.networks.weight_space import State, direction_dtype, numpy_dtype
from collectors.shapes import Float64
from collectors.validation import check_int
from collectors.weights.aligned import Weights, align, as_reader
from collectors.weights.safetensors_file import StateReader
from workers.curvature.probes import Trace
from workers.curvature.products import Layout, Vector
from workers.errors import CurvatureError
from workers.pool import Pool, StateTask
from workers.users_code import warn_user

from ..errors import error_message
from ..planes.from_checkpoints import origin_state
from ..record.workers import open_workers
from .experiment import find_out_how_losses_add_up

_LINES = 5  # of the random numbers for lines
# A larger rise is no parabola, and a smaller one drowns in the rounding of float32.
_RISE = 1e-3
_FIRST_STEP = 1e-2
_OF_ROUNDING = 1000
# Of what float16 and bfloat16 round weights to: less would be another step for each of them.
_OF_WEIGHTS = 10
_PILOTS = 3
_SEARCHES = 10
_HALVINGS = 3
# How far second differences over a step and over its half may be apart.
_AGREE = 0.1


def measure_trace(weights: Weights, callback_fn: Callable[[], Any], lines: int, chosen: Mapping[str, Any]) -> Trace:
    check_int("lines", lines, minimum=1)
    reader = as_reader("weights", weights)
    with open_workers(callback_fn, chosen, points=2 * lines) as pool:
        state = align(reader, pool.description.space)
        if find_out_how_losses_add_up(pool, {0: state}) is None:
            raise CurvatureError("the loss is not a finite number at these weights, some of which are NaN or infinite.")
        return find_trace_by_lines(pool, state, lines, seed=chosen["seed"])


def find_trace_by_lines(pool: Pool, state: StateReader, lines: int, *, seed: int, confidence: float = 0.95) -> Trace:
    probe = _Lines(pool, state, seed)
    step = probe.find_step(min(_PILOTS, lines))
    return Trace.of(probe.second_differences(range(lines), step), confidence=confidence)


class _Lines:
    def __init__(self, pool: Pool, state: StateReader, seed: int) -> None:
        self._pool, self._seed = pool, seed
        self._parameters, buffers = origin_state(state, pool.description.space)
        # Workers recalibrate what is not given.
        self._buffers = None if pool.description.options.buffers == "recalibrate" else buffers
        trainable = [info for info in pool.description.space.trainable if info.size]
        double = any(direction_dtype(info.dtype) == np.float64 for info in trainable)
        names, shapes = tuple(info.name for info in trainable), tuple(info.shape for info in trainable)
        self._layout = Layout(names, shapes, "float64" if double else "float32")
        coarsest = max(float(ml_dtypes.finfo(numpy_dtype(info.dtype)).eps) for info in trainable)
        self._rounding = max(_OF_ROUNDING * float(np.finfo(self._layout.dtype).eps), _OF_WEIGHTS * coarsest)
        self._here = self._losses([(0, 0.0)])[0]

    def find_step(self, pilots: int) -> float:
        """Returns how far a line goes each way, as a factor of its direction of -1 and 1."""
        values = [np.asarray(self._parameters[name], np.float64) for name in self._layout.names]
        size = np.sqrt(sum(float(np.square(value).sum()) for value in values) / self._layout.dimension)
        # Of a loss of zero no rise is small; but a step must not drown in the rounding of the weights.
        least = self._rounding * (size or 1.0)
        step = max(float(_FIRST_STEP * (size or 1.0)), least)
        for _ in range(_SEARCHES):
            found = self.second_differences(range(pilots), step)
            ratio = _RISE * abs(self._here) / max(float(np.abs(found).mean()) * step**2 / 2, np.finfo(float).tiny)
            if 0.25 <= ratio <= 4 or (ratio < 1 and step <= least):
                break
            step = max(step * float(np.clip(np.sqrt(ratio), 0.1, 10)), least)
        for _ in range(_HALVINGS):
            halved = self.second_differences(range(pilots), step / 2)
            if np.abs(halved - found).mean() <= _AGREE * np.abs(halved).mean():
                return step
            step, found = step / 2, halved
        warn_user(
            f"along random lines the loss is no parabola, also not over a step of {step:.1g}: the trace depends on the "
            "step. Kinks (ReLU, max pooling) do that, and so does a loss of about zero, in whose rounding its rise "
            "drowns; where derivatives exist, measure_curvature leaves kinks out.",
        )
        return step

    def second_differences(self, numbers: Sequence[int], step: float) -> Float64[np.ndarray, " lines"]:
        losses = self._losses([(number, sign * step) for number in numbers for sign in (1, -1)]).reshape(-1, 2)
        traces: Float64[np.ndarray, " lines"] = (losses.sum(1) - 2 * self._here) / step**2
        return traces

    def _losses(self, places: Sequence[tuple[int, float]]) -> Float64[np.ndarray, " places"]:
        tasks = (StateTask(place, lambda place=place: self._at(*place)) for place in places)  # type: ignore[misc]
        found: dict[Any, float] = {}
        for result in self._pool.run(tasks):
            if result.values is None:
                raise CurvatureError(f"the loss cannot be measured along a line: {error_message(result.error or '')}")
            found[result.key] = result.values["loss"]
        losses = np.array([found[place] for place in places])
        if not np.isfinite(losses).all():
            raise CurvatureError(
                "the loss is not a finite number at these weights or near them, where curvature has no meaning."
            )
        return losses

    def _at(self, number: int, step: float) -> tuple[State, State | None]:
        if not step:
            return self._parameters, self._buffers
        along: Vector = self._layout.rademacher(self._seed, _LINES, number)
        moved = {
            name: (np.asarray(self._parameters[name], part.dtype) + step * part).astype(self._parameters[name].dtype)
            for name, part in self._layout.as_state(along).items()
        }
        return {**self._parameters, **moved}, self._buffers
