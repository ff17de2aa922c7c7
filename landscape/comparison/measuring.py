"""``compare``: which of several recipes ends in the flatter minimum, as an experiment that can be resumed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.errors import CheckpointError, LandscapeError
from collectors.weights.aligned import AlignedState
from workers.errors import CurvatureError, SampleLossesError
from workers.pool import Pool
from workers.users_code import warn_user

from ..errors import PlaneError
from ..planes.from_checkpoints import check_spannable
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, carry_out, forecast_text, open_record
from ..record.identity import OF_LOSS, identity_of
from ..record.options import CompareOptions, documented, with_defaults
from ..record.provenance import function_attribute, measured_attributes
from ..record.record import record_format
from ..record.run import Run
from ..record.writer import output_file
from .comparison import Comparison
from .data import ComparisonData, InBlocks, block_names, block_sizes, left_out
from .lines import ComparisonSettings, FailedNetwork, MeasuredLine, MeasuredTrace, NetworkLines, lacks_trace
from .networks import Recipes, as_states, find_recipes

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Bool

_DRY_RUN = "dry run: reads the data set and measures one network's loss; writes nothing"
_OF_SETTINGS = ("radius", "normalization", "seed", "directions", "confidence", "rise")
_NAMED = 8


@documented(CompareOptions)
def compare(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]],
    callback_fn: Callable[[], Any],
    *,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    **options: Unpack[CompareOptions],
) -> Comparison | None:
    """Measures the loss along lines through several networks of each recipe, and says which recipe is flatter.

    All networks are measured along the same random directions (with the same random numbers, each scaled to its
    weights) and over the same samples, in one pool. The network is the unit of the statistics: three of each at least.

    Args:
        recipes: the networks of each recipe, two recipes at least: a list of networks, state dicts, files of weights or
            run directories (whose last checkpoint is taken), all of one architecture. Or a dict from names to these,
            such as seeds; recipes that are both given so are compared in pairs of the same name.
        callback_fn: takes no argument, returns (model, network, dataset, metrics) or an Evaluator.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        output: the comparison file, or its fsspec URL; None keeps all in memory. A file of the same identity is
            continued, line by line, and may get more networks or directions.
        num_samples: samples that the loss is a mean over; None means all of the data set.
        **options: see ``CompareOptions``.

    Returns:
        The comparison; its ``path`` is ``output``. None after a dry run.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value, or a network is given twice.
        CheckpointError: a network is of another architecture, or cannot be read.
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.

    Source: Li, Xu, Taylor, Studer, Goldstein 2018 (the lines); Welch 1947, Holm 1979 (the tests).
    """
    chosen: CompareOptions = with_defaults("compare", CompareOptions, options)
    settings = ComparisonSettings(**{item.name: chosen[item.name] for item in fields(ComparisonSettings)})  # type: ignore[literal-required]
    run, given = Run.checked(chosen), find_recipes(recipes)
    path = None if output is None else output_file(output, [entry.reader for entry in given.entries])
    run.say(_DRY_RUN, timed=False)
    attributes = {"samples": chosen["samples"], **function_attribute(callback_fn)}
    experiment = ComparisonExperiment(given, settings, attributes)
    how = {**chosen, "num_samples": num_samples, "device_ids": device_ids}
    count = len(given.entries) * settings.directions * settings.points
    with open_record(record_format(ComparisonData), path, run) as stored:
        # With several networks of each, it is they who say how sure the answer is.
        blocks = {"groups": InBlocks()} if given.one_each else {}
        try:
            measured = carry_out(lambda _: experiment, stored, callback_fn, {**how, **blocks}, run, points=count)
        except SampleLossesError:
            if not blocks:
                raise
            measured = carry_out(lambda _: experiment, stored, callback_fn, how, run, points=count)
    return None if measured is None else Comparison(measured[0], report=measured[1])


@dataclass
class ComparisonExperiment(Experiment[ComparisonData]):
    """The loss along lines through the networks of several recipes.

    Attributes:
        attributes: what the file says beside what the experiment knows itself.
        states: the weights of each network, once the experiment has begun.
    """

    recipes: Recipes
    settings: ComparisonSettings
    attributes: Mapping[str, Any]
    states: Sequence[AlignedState] = ()
    unit: str = "line"
    trial: str = "measuring one network's loss"

    def begin(self, stored: Stored[ComparisonData], pool: Pool) -> ComparisonData:
        """Returns the comparison with its identity and the lines of the file."""
        check_spannable(pool.description.space)
        self.states = as_states(self.recipes, pool.description.space)
        self._find_out_how_losses_add_up(pool)
        description = pool.description
        blocks = len(block_names(description.metrics))
        settings = self.settings
        lines = {"normalization": settings.normalization, "seed": settings.seed, "t": settings.t.tolist()}
        identity = identity_of(description, (*OF_LOSS, "buffers"), {"lines": lines})
        identity["samples"]["blocks"] = blocks
        attributes = {
            **self.attributes,
            **measured_attributes(description),
            **{name: getattr(settings, name) for name in _OF_SETTINGS},
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
            "t": settings.t,
            "block_size": block_sizes(description.num_samples, blocks),
        }
        return ComparisonData.empty(columns, {"direction": settings.directions}, attributes).continuing(stored)

    def resume(self, record: ComparisonData, pool: Pool) -> Bool[np.ndarray, "n directions"]:
        """Returns which lines are measured; those of networks that only the file has are not."""
        networks = len(self.states)
        record.forget_failed(range(networks))
        todo: Bool[np.ndarray, "n directions"] = record.status != PointStatus.MEASURED
        todo[networks:], todo[:, self.settings.directions :] = False, False
        return todo

    def forecast(self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run) -> str:
        """Returns in words what measuring would cost, after one network's own loss is measured."""
        return self._forecast(record, todo, pool, max(origin.measured.seconds for origin in pool.measure_origin()))

    def results(
        self, record: ComparisonData, todo: Bool[np.ndarray, "n directions"], pool: Pool, run: Run
    ) -> Iterator[str | MeasuredLine | MeasuredTrace | FailedNetwork]:
        """Yields the lines through one network after the other."""
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
                yield FailedNetwork(row, self.settings.directions, f"{type(error).__name__}: {error}")

    def keep(self, record: ComparisonData, result: MeasuredLine | MeasuredTrace | FailedNetwork) -> int:
        """Writes a result to its place."""
        return result.keep(record)

    def warn(self, record: ComparisonData, run: Run) -> None:
        """Warns of networks that do not count."""
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
        points = pending * (settings.points - 1) + int(todo.any(1).sum())
        lacking = sum(lacks_trace(record, row, settings) for row in range(networks))
        tasks = f"{networks} networks x {settings.directions} lines"
        done = networks * settings.directions - pending
        return forecast_text(tasks, done, points + lacking * 2 * settings.trace_lines, "point", seconds, pool.workers)


def _reasons(data: ComparisonData) -> str:
    out = left_out(data)
    texts = [f"{data.recipe[row]} {data.name[row]} ({reason})" for row, reason in list(out.items())[:_NAMED]]
    return "; ".join([*texts, *([f"and {len(out) - _NAMED} more"] if len(out) > _NAMED else [])])
