"""Which of several recipes ends in the flatter minimum, as an experiment: lines through each network, one by one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from collectors.errors import CheckpointError, LandscapeError
from collectors.networks.weight_space import direction_dtype
from collectors.shapes import Bool
from collectors.weights.aligned import AlignedState
from workers.curvature.probes import Trace
from workers.errors import CurvatureError, SampleLossesError, SampleMemoryError
from workers.measuring.checks import check_determinism, check_same_values, closeness_elsewhere
from workers.pool import PointTask, Pool, Result
from workers.users_code import warn_user

from ..curvature.lines import find_trace_by_lines
from ..errors import PlaneError
from ..planes.directions import random_direction
from ..planes.from_checkpoints import check_spannable, origin_state
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, carry_out, forecast_text, open_record
from ..record.identity import OF_LOSS, function_attribute, identity_of, measured_attributes
from ..record.option_kinds import CompareOptions
from ..record.options import table_of
from ..record.record import record_format
from ..record.run import Cost, Run
from ..record.writer import output_file
from .comparison import Comparison
from .data import MOST_BLOCKS, TRACE, TRACE_LINES, ComparisonData, InBlocks, block_names, left_out
from .networks import Recipes, as_states, find_recipes

_OF_SETTINGS = ("radius", "normalization", "seed", "directions", "confidence", "rise")
_NAMED = 8
_FAILURES = (CheckpointError, PlaneError, CurvatureError, FloatingPointError)
# Of the directions that workers hold at once; each makes every point a little dearer.
_MOST_BYTES = 2**30
_MOST_DIRECTIONS = 16
# In the identity of a loss that is a sum over samples.
_SUM = "sum"

Keep: TypeAlias = Callable[[ComparisonData], int]
"""Writes what was measured to its place, and returns how many lines that ends."""


def compare_recipes(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]],
    callback_fn: Callable[[], Any],
    output: object,
    chosen: Mapping[str, Any],
) -> Comparison | None:
    usual = "fixed" if chosen["buffers"] == "auto" else chosen["buffers"]
    chosen = {**chosen, "buffers": table_of(CompareOptions)["buffers"].checked("buffers", usual)}
    if chosen["trace_lines"] and chosen["precision"] != "float32":
        raise ValueError(
            f'trace_lines must be 0 with precision="{chosen["precision"]}": along its lines the loss rises by a '
            "thousandth of itself, which is less than that precision rounds away."
        )
    run, given = Run.checked(chosen), find_recipes(recipes)
    inputs = [entry.reader for entry in given.entries]
    path = None if output is None else output_file(output, inputs, rehearsal=run.rehearsal)
    attributes = {"samples": chosen["samples"], **function_attribute(callback_fn)}
    count = len(given.entries) * chosen["directions"] * chosen["points"]
    with open_record(record_format(ComparisonData), path, run) as stored:

        def measured(options: Mapping[str, Any]) -> list[tuple[ComparisonData, Any]]:
            experiment = ComparisonExperiment(given, chosen, attributes)
            return carry_out(lambda _workers: [experiment], [stored], callback_fn, options, run, points=count)

        # With several networks of each, it is they who say how sure the answer is. A file goes on as it began.
        before, is_one_each = stored.record, len(given.entries) == len(given.names)
        splits = is_one_each if before is None else before.block_size.size > 0
        blocks = {"groups": InBlocks()} if splits else {}
        try:
            found = measured({**chosen, **blocks})
        except (SampleLossesError, SampleMemoryError):
            if not blocks:
                raise
            found = measured(chosen)
    return Comparison(found[0][0], report=found[0][1]) if found else None


@dataclass
class ComparisonExperiment(Experiment[ComparisonData]):
    recipes: Recipes
    settings: Mapping[str, Any]  # ``CompareOptions`` and the seed
    attributes: Mapping[str, Any]  # what the file says beside what the experiment knows itself
    states: Sequence[AlignedState] = ()  # the weights of each network, once the experiment has begun
    seconds: float = 0.0  # that a point takes, once a network's loss is measured
    unit: str = "line"
    trial: str = "measuring one network's loss"

    def begin(self, stored: Stored[ComparisonData], pool: Pool) -> ComparisonData:
        check_spannable(pool.description.space)
        self.states = as_states(self.recipes, pool.description.space)
        self._find_out_how_losses_add_up(pool)
        description = pool.description
        blocks = len(block_names(description.metrics))
        sums = pool.sample_losses([(0.0,)]) if blocks else None
        weights = None if sums is None else sums.denominators
        settings = self.settings
        # Places on a line, in lengths of its direction; 0 is exactly in the middle.
        half = np.linspace(0, settings["radius"], settings["points"] // 2 + 1)
        places = np.concatenate([-half[:0:-1], half])
        lines = {"normalization": settings["normalization"], "seed": settings["seed"], "t": places.tolist()}
        identity = identity_of(description, (*OF_LOSS, "buffers"), {"lines": lines})
        identity["samples"]["blocks"] = blocks
        if sums is not None and weights is None:
            identity["samples"][_SUM] = True
        attributes = {
            **self.attributes,
            **measured_attributes(description),
            **{name: settings[name] for name in _OF_SETTINGS},
            "buffers": description.options.buffers,
            "weights": description.space.dimension,
            "recipes": list(self.recipes.names),
            "paired": list(self.recipes.paired),
            "identity": identity,
        }
        counted = np.ones(description.num_samples) if weights is None else weights
        columns = {
            "recipe": [entry.recipe for entry in self.recipes.entries],
            "name": [entry.name for entry in self.recipes.entries],
            "sha256": [state.sha256() for state in self.states],
            "t": places,
            "block_size": [counted[block::MOST_BLOCKS].sum() for block in range(blocks)],
        }
        return ComparisonData.empty(columns, {"direction": settings["directions"]}, attributes).continuing(stored)

    def resume(self, record: ComparisonData, pool: Pool) -> Bool[np.ndarray, "n directions"]:
        networks = len(self.states)  # others, which only the file has, are not measured
        # A trace that failed is tried again where traces are asked for.
        kept = {place: text for place, text in record.errors.items() if place.endswith(f"/{TRACE}")}
        record.forget_failed(range(networks))
        record.errors |= {} if self.settings["trace_lines"] else kept
        todo: Bool[np.ndarray, "n directions"] = record.status != PointStatus.MEASURED
        todo[networks:], todo[:, self.settings["directions"] :] = False, False
        return todo

    def forecast(self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run) -> Cost:
        self.seconds = max(origin.measured.seconds for origin in pool.measure_origin())
        return self._forecast(record, todo, pool)

    def results(
        self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run
    ) -> Iterator[str | Keep]:
        settings, announced = self.settings, False
        # Functions are part of no identity: a network of which nothing is left shows whether the loss is another one.
        measured = np.flatnonzero(~todo[: len(self.states)].any(1))
        lacking = todo.any() or any(_lacks_trace(record, row, settings) for row in range(len(self.states)))
        if lacking and len(measured):
            self._load(pool, self.states[measured[0]], [0])
            self._measure_network(record, int(measured[0]), pool)
        for row in run.in_time(range(len(self.states))):
            try:
                for line in self._lines(record, row, pool, run):
                    if not announced:
                        yield self._forecast(record, todo, pool)
                        announced = True
                    yield line
            except _FAILURES as error:
                yield functools.partial(_keep_failure, row, settings["directions"], error)
                continue
            if _lacks_trace(record, row, settings) and not run.is_over():
                yield self._trace(row, pool)

    def _trace(self, row: int, pool: Pool) -> Keep:
        lines, seed, confidence = (self.settings[name] for name in ("trace_lines", "seed", "confidence"))
        try:
            if pool.description.options.buffers == "recalibrate":
                # What of the buffers is not recalibrated is that of the network which is loaded.
                self._load(pool, self.states[row], [0])
            trace = find_trace_by_lines(pool, self.states[row], lines, seed=seed, confidence=confidence)
        except _FAILURES as error:
            return functools.partial(_keep_failure, row, 0, error, place=f"/{TRACE}")
        return functools.partial(_keep_trace, row, lines, trace)

    def keep(self, record: ComparisonData, result: Keep) -> int:
        return result(record)

    def warn(self, record: ComparisonData, run: Run) -> None:
        if record.errors and not record.status_counts[PointStatus.MEASURED]:
            raise LandscapeError(f"no network could be measured: {_reasons(record, left_out(record))}")
        if (out := left_out(record)) and (record.complete or not run.stopped):
            warn_user(f"left out of the comparison: {_reasons(record, out)}")
        of_traces = {row: reason for row, reason in left_out(record, TRACE).items() if row not in out}
        if of_traces:
            warn_user(f"left out of the comparison of traces: {_reasons(record, of_traces)}")
        lacking = sum(_lacks_trace(record, row, self.settings) for row in range(len(self.states)))
        if run.stopped and lacking:
            warn_user(f"the budget ended before the traces of {lacking} of {len(self.states)} networks were measured.")

    def _find_out_how_losses_add_up(self, pool: Pool) -> None:
        """Puts the first finite network on the workers, who find out whether the loss splits into samples."""
        for state in self.states:
            with contextlib.suppress(CheckpointError, PlaneError, FloatingPointError):
                self._load(pool, state, [0])
                return
        labels = ", ".join(entry.label for entry in self.recipes.entries[:_NAMED])
        raise CheckpointError(f"no network has weights that are finite numbers and not all zero: {labels}")

    def _load(self, pool: Pool, state: AlignedState, directions: Sequence[int]) -> None:
        """Puts a network of finite weights, and random directions through it, on the workers."""
        space, settings = pool.description.space, self.settings
        drawn = {name: settings[name] for name in ("seed", "normalization")}
        parameters, buffers = origin_state(state, space)
        vectors = [random_direction(space, state, index=number, **drawn) for number in directions]
        if not any(values.any() for values in vectors[0].values()):
            raise PlaneError(
                f"a random direction is zero at {state.label}: no trainable tensor of the network "
                f"{space.network} that may move has two axes and values other than zero."
            )
        pool.load(parameters, vectors, buffers, (), [_at(len(directions), 0, settings["radius"])])

    def _lines(self, data: ComparisonData, row: int, pool: Pool, run: Run) -> Iterator[Keep]:
        """Yields the lines through a network that are not measured yet."""
        state, wanted, description = self.states[row], self.settings["directions"], pool.description
        todo = np.flatnonzero(data.status[row, :wanted] != PointStatus.MEASURED).tolist()
        trainable = description.space.trainable
        size_of_each = sum(tensor.size * direction_dtype(tensor.dtype).itemsize for tensor in trainable)
        size = max(1, min(wanted, _MOST_DIRECTIONS, _MOST_BYTES // max(size_of_each, 1)))
        origin: dict[str, float] = {}
        for begin in range(0, len(todo), size):
            if run.is_over():
                return
            chunk = todo[begin : begin + size]
            self._load(pool, state, chunk)
            if not origin:
                origin = self._measure_network(data, row, pool)
            found: dict[int, dict[int, Result]] = {number: {} for number in chunk}
            tasks = (
                PointTask((number, point), _at(len(chunk), place, t))
                for place, number in run.in_time(enumerate(chunk))
                for point, t in enumerate(data.t.tolist())
                if point != len(data.t) // 2
            )
            for result in pool.run(tasks):
                number, point = cast("tuple[int, int]", result.key)
                found[number][point] = result
                if len(found[number]) == len(data.t) - 1:
                    yield functools.partial(_keep_line, row, number, origin, found.pop(number))

    def _measure_network(self, data: ComparisonData, row: int, pool: Pool) -> dict[str, float]:
        """Returns what is measured of the network that is loaded; its loss must be the file's, if that has it."""
        origins, precision = pool.measure_origin(), pool.description.options.precision
        origin = check_determinism(origins, precision)
        if not np.isfinite(origin["loss"]):
            raise CheckpointError(f"the loss at {self.states[row].label} is not a finite number")
        known = data.loss[row, data.status[row] == PointStatus.MEASURED, len(data.t) // 2]
        if len(known):
            stored, now = {"loss": float(known[0])}, {"loss": origin["loss"]}
            where, tolerance = "now, after the file's own value", closeness_elsewhere(precision)
            check_same_values("a network", stored, now, where, tolerance)
        self.seconds = max(item.measured.seconds for item in origins)
        return origin

    def _forecast(self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool) -> Cost:
        settings, networks, pending = self.settings, len(self.states), int(todo.sum())
        points = pending * (settings["points"] - 1) + int(todo.any(1).sum())
        points += 2 * settings["trace_lines"] * sum(_lacks_trace(record, row, settings) for row in range(networks))
        tasks, lines = f"{networks} networks x {settings['directions']} lines", networks * settings["directions"]
        return forecast_text(tasks, lines - pending, points, "point", self.seconds, pool.workers)


def _reasons(data: ComparisonData, out: Mapping[int, str]) -> str:
    texts = [f"{data.recipe[row]} {data.name[row]} ({reason})" for row, reason in list(out.items())[:_NAMED]]
    return "; ".join([*texts, *([f"and {len(out) - _NAMED} more"] if len(out) > _NAMED else [])])


def _keep_line(
    row: int, direction: int, origin: Mapping[str, float], results: Mapping[int, Result], data: ComparisonData
) -> int:
    """Keeps a line's values by place, the loss and those of blocks of samples, or the error of a point that failed."""
    place, last = (row, direction), len(data.t) - 1
    if errors := [result.error or "no traceback" for result in results.values() if result.values is None]:
        data.status[place] = PointStatus.FAILED
        data.errors[f"{data.place_of(row)}/direction/{direction}"] = errors[0]
        return 1
    values = {last // 2: origin, **{point: result.values or {} for point, result in results.items()}}
    data.loss[place] = [values[point]["loss"] for point in range(last + 1)]
    if data.block_size.size:
        names, ends = block_names(values[0]), (values[point] for point in (last // 2, 0, last))
        middle, low, high = (np.array([item[name] for name in names]) for item in ends)
        rises, sizes = (low + high) / 2 - middle, data.block_size
        # Of a sum, what it would be if all samples were like those of the block.
        is_sum = _SUM in data.attributes["identity"]["samples"]
        data.block_rise[place] = rises * sizes.sum() / sizes if is_sum else rises
    data.status[place] = PointStatus.MEASURED
    return 1


def _keep_trace(row: int, lines: int, trace: Trace, data: ComparisonData) -> int:
    data.trace[row], data.trace_low[row], data.trace_high[row] = trace.value, trace.low, trace.high
    data.attributes[TRACE_LINES] = {**data.trace_lines, data.sha256[row]: lines}
    return 0


def _keep_failure(row: int, directions: int, error: Exception, data: ComparisonData, place: str = "") -> int:
    wanted = data.status[row, :directions]
    failed = wanted != PointStatus.MEASURED
    wanted[failed] = PointStatus.FAILED
    data.errors[data.place_of(row) + place] = f"{type(error).__name__}: {error}"
    return int(failed.sum())


def _at(axes: int, place: int, t: float) -> tuple[float, ...]:
    return tuple(t if axis == place else 0.0 for axis in range(axes))


def _lacks_trace(data: ComparisonData, row: int, settings: Mapping[str, Any]) -> bool:
    lines = settings["trace_lines"]
    return bool(lines and (np.isnan(data.trace[row]) or data.trace_lines.get(data.sha256[row]) != lines))
