"""``compare``: which of several recipes ends in the flatter minimum."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workers.errors import CallbackFunctionError

from ..record.driver import forecast, measure, open_record
from ..record.options import documented, with_defaults
from ..record.provenance import function_attribute
from ..record.record import record_format
from ..record.run import Announcer, Run
from ..record.workers import open_workers
from ..record.writer import output_file
from .blocks import InBlocks
from .comparison import Comparison
from .data import ComparisonData
from .experiment import ComparisonExperiment
from .networks import find_recipes
from .options import COMPARISON_OPTIONS, CompareOptions
from .settings import ComparisonSettings

if TYPE_CHECKING:
    from typing import Unpack

_DRY_RUN = "dry run: reads the data set and measures one network's loss; writes nothing"
_NO_BLOCKS = ("groups needs a loss that has a value for each sample", "groups does not reach the Evaluator")


@documented(CompareOptions, COMPARISON_OPTIONS)
def compare(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]],
    callback_fn: Callable[[], Any],
    *,
    directions: int = 12,
    points: int = 9,
    radius: float = 0.5,
    normalization: str = "filter",
    seed: int = 0,
    confidence: float = 0.95,
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
        directions: random directions through each network.
        points: along each of them, odd; the network itself is in the middle.
        radius: how far a line goes each way, in lengths of its direction.
        normalization: of the directions: "filter", "layer", "weight" or "none".
        seed: of the directions, of a random choice of samples, and of the bootstrap.
        confidence: of the intervals.
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
    chosen: CompareOptions = with_defaults("compare", CompareOptions, options, COMPARISON_OPTIONS)
    settings = ComparisonSettings(
        directions, points, radius, normalization, seed, confidence, chosen["rise"], chosen["trace_lines"]
    )
    rehearsal = chosen["dry_run"]
    run = Run.checked(chosen)
    found = find_recipes(recipes)
    readers = [entry.reader for entry in found.entries]
    path = None if output is None else output_file(output, readers)
    say = Announcer(shown=rehearsal)
    say(_DRY_RUN, timed=False)
    say("building the network, reading the samples")

    attributes = {"samples": chosen["samples"], **function_attribute(callback_fn)}
    experiment = ComparisonExperiment(found, settings, attributes)
    with open_record(record_format(ComparisonData), path, overwrite=run.overwrite, rehearsal=rehearsal) as stored:

        def measured(*, blocks: bool) -> Comparison | None:
            how = {
                **chosen,
                "groups": InBlocks() if blocks else None,
                "seed": seed,
                "num_samples": num_samples,
                "device_ids": device_ids,
            }
            with open_workers(
                callback_fn,
                how,
                stored=[stored],
                points=len(found.entries) * directions * points,
                seconds=run.budget,
                rehearsal=rehearsal,
            ) as pool:
                if rehearsal:
                    say(forecast(experiment, stored, pool, run), timed=False)
                    return None
                record, report = measure(experiment, stored, pool, run)
                return Comparison(record, report=report)

        try:
            # With several networks of each, it is they who say how sure the answer is.
            return measured(blocks=found.one_each)
        except (CallbackFunctionError, ValueError) as error:
            if not (found.one_each and any(text in str(error) for text in _NO_BLOCKS)):
                raise
        return measured(blocks=False)
