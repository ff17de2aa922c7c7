"""The lines through one network: which these are, how they are measured, and where their losses go."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from collectors.errors import CheckpointError
from collectors.networks.weight_space import direction_dtype
from collectors.shapes import Float64
from collectors.weights.aligned import AlignedState
from workers.curvature.probes import Trace
from workers.measuring.checks import check_determinism, check_same_values, closeness_elsewhere
from workers.pool import PointTask, Pool

from ..curvature.lines import find_trace_by_lines
from ..errors import PlaneError
from ..planes.directions import random_direction
from ..planes.from_checkpoints import origin_state
from ..record.checks import PointStatus
from ..record.run import Run
from .data import TRACE_LINES, ComparisonData, block_names

# Of the directions that workers hold at once; each makes every point a little dearer.
_MOST_BYTES = 2**30
_MOST_DIRECTIONS = 16

Keep: TypeAlias = Callable[[ComparisonData], int]
"""Writes what was measured to its place, and returns how many lines that ends."""


def line_places(points: int, radius: float) -> Float64[np.ndarray, " points"]:
    """Returns places on a line, in lengths of its direction; 0 is exactly in the middle."""
    half = np.linspace(0, radius, points // 2 + 1)
    return np.concatenate([-half[:0:-1], half])


def _keep_line(
    row: int, direction: int, values: Mapping[int, Mapping[str, float]], error: str | None, data: ComparisonData
) -> int:
    """Keeps a line's values by place, the loss and those of blocks of samples, or the error of a point that failed."""
    place, last = (row, direction), len(data.t) - 1
    if error is not None:
        data.status[place] = PointStatus.FAILED
        data.errors[f"{data.place_of(row)}/direction/{direction}"] = error
        return 1
    data.loss[place] = [values[point]["loss"] for point in range(last + 1)]
    if data.block_size.size:
        names, ends = block_names(values[0]), (values[point] for point in (last // 2, 0, last))
        middle, low, high = (np.array([item[name] for name in names]) for item in ends)
        data.block_rise[place] = (low + high) / 2 - middle
    data.status[place] = PointStatus.MEASURED
    return 1


def _keep_trace(row: int, lines: int, trace: Trace, data: ComparisonData) -> int:
    data.trace[row], data.trace_low[row], data.trace_high[row] = trace.value, trace.low, trace.high
    data.attributes[TRACE_LINES] = {**data.trace_lines, data.sha256[row]: lines}
    return 0


def keep_failure(row: int, directions: int, error: str, data: ComparisonData) -> int:
    """Marks the lines of a network that are not measured, and returns how many these are."""
    wanted = data.status[row, :directions]
    failed = wanted != PointStatus.MEASURED
    wanted[failed] = PointStatus.FAILED
    data.errors[data.place_of(row)] = error
    return int(failed.sum())


class NetworkLines:
    """The lines through a network of finite weights; a point takes ``seconds``, once its loss is measured."""

    def __init__(self, pool: Pool, state: AlignedState, settings: Mapping[str, Any]) -> None:
        self._pool, self._state, self._settings = pool, state, settings
        self.seconds: float | None = None

    def load(self, directions: Sequence[int]) -> None:
        space, settings = self._pool.description.space, self._settings
        drawn = {name: settings[name] for name in ("seed", "normalization")}
        parameters, buffers = origin_state(self._state, space)
        vectors = [random_direction(space, self._state, index=number, **drawn) for number in directions]
        if not any(values.any() for values in vectors[0].values()):
            raise PlaneError(
                f"a random direction is zero at {self._state.label}: no trainable tensor of the network "
                f"{space.network} that may move has two axes and values other than zero."
            )
        self._pool.load(parameters, vectors, buffers, (), [_at(len(directions), 0, settings["radius"])])

    def measure(self, data: ComparisonData, row: int, run: Run) -> Iterator[Keep]:
        """Yields each line that was not measured, as soon as it is whole."""
        settings = self._settings
        wanted = data.status[row, : settings["directions"]]
        todo = np.flatnonzero(wanted != PointStatus.MEASURED).tolist()
        trainable = self._pool.description.space.trainable
        size_of_each = sum(tensor.size * direction_dtype(tensor.dtype).itemsize for tensor in trainable)
        size = max(1, min(settings["directions"], _MOST_DIRECTIONS, _MOST_BYTES // max(size_of_each, 1)))
        origin: dict[str, float] | None = None
        for begin in range(0, len(todo), size):
            chunk = todo[begin : begin + size]
            self.load(chunk)
            if origin is None:
                origins = self._pool.measure_origin()
                origin = check_determinism(origins, self._pool.description.options.precision)
                self._check(origin["loss"], data, row)
                self.seconds = max(item.measured.seconds for item in origins)
            yield from self._along(data, row, chunk, origin, run)

    def trace(self, data: ComparisonData, row: int) -> Iterator[Keep]:
        settings = self._settings
        if lacks_trace(data, row, settings):
            parameters, buffers = origin_state(self._state, self._pool.description.space)
            lines, seed, confidence = settings["trace_lines"], settings["seed"], settings["confidence"]
            trace = find_trace_by_lines(self._pool, parameters, buffers, lines, seed=seed, confidence=confidence)
            yield functools.partial(_keep_trace, row, lines, trace)

    def _check(self, loss: float, data: ComparisonData, row: int) -> None:
        if not np.isfinite(loss):
            raise CheckpointError(f"the loss at {self._state.label} is not a finite number")
        measured = np.flatnonzero(data.status[row] == PointStatus.MEASURED)
        if len(measured):
            stored = {"loss": float(data.loss[row, measured[0], len(data.t) // 2])}
            tolerance = closeness_elsewhere(self._pool.description.options.precision)
            check_same_values("a network", stored, {"loss": loss}, "now, after the file's own value", tolerance)

    def _along(
        self, data: ComparisonData, row: int, chunk: Sequence[int], origin: Mapping[str, float], run: Run
    ) -> Iterator[Keep]:
        middle = len(data.t) // 2
        values: dict[int, dict[int, Mapping[str, float]]] = {number: {middle: origin} for number in chunk}
        errors: dict[int, str] = {}
        left = dict.fromkeys(chunk, len(data.t) - 1)
        tasks = (
            PointTask((number, point), _at(len(chunk), place, t))
            for place, number in run.in_time(enumerate(chunk))
            for point, t in enumerate(data.t.tolist())
            if point != middle
        )
        for result in self._pool.run(tasks):
            number, point = cast("tuple[int, int]", result.key)
            if result.values is None:
                errors.setdefault(number, result.error or "no traceback")
            else:
                values[number][point] = result.values
            left[number] -= 1
            if not left[number]:
                yield functools.partial(_keep_line, row, number, values[number], errors.get(number))


def _at(axes: int, place: int, t: float) -> tuple[float, ...]:
    coordinates = [0.0] * axes
    coordinates[place] = t
    return tuple(coordinates)


def lacks_trace(data: ComparisonData, row: int, settings: Mapping[str, Any]) -> bool:
    """Returns whether the trace of a network is asked for, and not known from as many lines."""
    lines = settings["trace_lines"]
    return bool(lines and (np.isnan(data.trace[row]) or data.trace_lines.get(data.sha256[row]) != lines))
