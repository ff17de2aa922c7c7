"""Which of several recipes ends in the flatter minimum, as an experiment that can be resumed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.errors import CheckpointError, LandscapeError
from collectors.shapes import Bool
from collectors.weights.aligned import AlignedState
from workers.errors import CurvatureError, SampleLossesError
from workers.pool import Pool
from workers.users_code import warn_user

from ..errors import PlaneError
from ..planes.from_checkpoints import check_spannable
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, carry_out, forecast_text, open_record
from ..record.identity import OF_LOSS, identity_of
from ..record.options import CompareOptions, table_of
from ..record.provenance import function_attribute, measured_attributes
from ..record.record import record_format
from ..record.run import Run
from ..record.writer import output_file
from .comparison import Comparison
from .data import ComparisonData, InBlocks, block_names, block_sizes, left_out
from .lines import Keep, NetworkLines, keep_failure, lacks_trace, line_places
from .networks import Recipes, as_states, find_recipes

_OF_SETTINGS = ("radius", "normalization", "seed", "directions", "confidence", "rise")
_NAMED = 8


def compare_recipes(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]],
    callback_fn: Callable[[], Any],
    output: object,
    chosen: Mapping[str, Any],
) -> Comparison | None:
    usual = "fixed" if chosen["buffers"] == "auto" else chosen["buffers"]
    chosen = {**chosen, "buffers": table_of(CompareOptions)["buffers"].checked("buffers", usual)}
    run, given = Run.checked(chosen), find_recipes(recipes)
    path = None if output is None else output_file(output, [entry.reader for entry in given.entries])
    attributes = {"samples": chosen["samples"], **function_attribute(callback_fn)}
    count = len(given.entries) * chosen["directions"] * chosen["points"]
    with open_record(record_format(ComparisonData), path, run) as stored:

        def measured(options: Mapping[str, Any]) -> list[tuple[ComparisonData, Any]]:
            experiment = ComparisonExperiment(given, chosen, attributes)
            return carry_out(lambda _workers: [experiment], [stored], callback_fn, options, run, points=count)

        # With several networks of each, it is they who say how sure the answer is.
        blocks = {"groups": InBlocks()} if len(given.entries) == len(given.names) else {}
        try:
            found = measured({**chosen, **blocks})
        except SampleLossesError:
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
    unit: str = "line"
    trial: str = "measuring one network's loss"

    def begin(self, stored: Stored[ComparisonData], pool: Pool) -> ComparisonData:
        check_spannable(pool.description.space)
        self.states = as_states(self.recipes, pool.description.space)
        self._find_out_how_losses_add_up(pool)
        description = pool.description
        blocks = len(block_names(description.metrics))
        settings = self.settings
        places = line_places(settings["points"], settings["radius"])
        lines = {"normalization": settings["normalization"], "seed": settings["seed"], "t": places.tolist()}
        identity = identity_of(description, (*OF_LOSS, "buffers"), {"lines": lines})
        identity["samples"]["blocks"] = blocks
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
        columns = {
            "recipe": [entry.recipe for entry in self.recipes.entries],
            "name": [entry.name for entry in self.recipes.entries],
            "sha256": [state.sha256() for state in self.states],
            "t": places,
            "block_size": block_sizes(description.num_samples, blocks),
        }
        return ComparisonData.empty(columns, {"direction": settings["directions"]}, attributes).continuing(stored)

    def resume(self, record: ComparisonData, pool: Pool) -> Bool[np.ndarray, "n directions"]:
        networks = len(self.states)  # others, which only the file has, are not measured
        record.forget_failed(range(networks))
        todo: Bool[np.ndarray, "n directions"] = record.status != PointStatus.MEASURED
        todo[networks:], todo[:, self.settings["directions"] :] = False, False
        return todo

    def forecast(self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run) -> str:
        return self._forecast(record, todo, pool, max(origin.measured.seconds for origin in pool.measure_origin()))

    def results(
        self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run
    ) -> Iterator[str | Keep]:
        announced = False
        for row, state in run.in_time(enumerate(self.states)):
            lines = NetworkLines(pool, state, self.settings)
            try:
                for line in lines.measure(record, row, run):
                    if not announced and lines.seconds is not None:
                        yield self._forecast(record, todo, pool, lines.seconds)
                        announced = True
                    yield line
                yield from lines.trace(record, row)
            except (CheckpointError, PlaneError, CurvatureError, FloatingPointError) as error:
                reason = f"{type(error).__name__}: {error}"
                yield functools.partial(keep_failure, row, self.settings["directions"], reason)

    def keep(self, record: ComparisonData, result: Keep) -> int:
        return result(record)

    def warn(self, record: ComparisonData, run: Run) -> None:
        if record.errors and not record.status_counts[PointStatus.MEASURED]:
            raise LandscapeError(f"no network could be measured: {_reasons(record)}")
        if left_out(record) and (record.complete or not run.stopped):
            warn_user(f"left out of the comparison: {_reasons(record)}")

    def _find_out_how_losses_add_up(self, pool: Pool) -> None:
        """Puts the first finite network on the workers, who find out whether the loss splits into samples."""
        for state in self.states:
            with contextlib.suppress(CheckpointError, PlaneError, FloatingPointError):
                NetworkLines(pool, state, self.settings).load([0])
                return
        labels = ", ".join(entry.label for entry in self.recipes.entries[:_NAMED])
        raise CheckpointError(f"no network has weights that are finite numbers and not all zero: {labels}")

    def _forecast(
        self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, seconds: float
    ) -> str:
        settings, networks, pending = self.settings, len(self.states), int(todo.sum())
        points = pending * (settings["points"] - 1) + int(todo.any(1).sum())
        points += 2 * settings["trace_lines"] * sum(lacks_trace(record, row, settings) for row in range(networks))
        tasks = f"{networks} networks x {settings['directions']} lines"
        return forecast_text(tasks, networks * settings["directions"] - pending, points, "point", seconds, pool.workers)


def _reasons(data: ComparisonData) -> str:
    out = left_out(data)
    texts = [f"{data.recipe[row]} {data.name[row]} ({reason})" for row, reason in list(out.items())[:_NAMED]]
    return "; ".join([*texts, *([f"and {len(out) - _NAMED} more"] if len(out) > _NAMED else [])])
