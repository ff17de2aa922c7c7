"""The commands about two networks: what lies between them (``barrier``, ``connect``), their units (``align``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.curves.curve import KINDS

from .arguments import interruptible, load_function
from .options import SURVEY_OPTIONS, choice, with_options
from .typed_checkpoint import TypedCheckpoint, named_weights

if TYPE_CHECKING:
    from collectors.networks.weight_space import WeightSpace

    from ..paths.barrier import Barrier

_SHARED = tuple(name for name in SURVEY_OPTIONS if name not in ("limits", "margin", "extremes"))
# A curve is fitted with the loss alone, by a plan of its own.
_OF_WAY = (
    "plan", "groups", "keep_samples", "buffers", "recalibration_batch_size", "precision", "seed_each_point", "samples",
)  # fmt: skip
_CALLED = {"a": "A", "b": "B"}
_COMPARED = 32  # samples on which an alignment is verified
_FORM = "checkpoint file, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER"
_NETWORK = f"{_FORM}; NAME= in front names it in pictures."
First = Annotated[str, typer.Argument(metavar="A", help=f"The first network: a {_NETWORK}")]
Second = Annotated[str, typer.Argument(metavar="B", help="The second network, typed likewise.")]
Points = Annotated[int, typer.Option(help="Points on the way, both ends among them.", rich_help_panel="Grid")]


@with_options("function", "output", "points", "device_ids", "num_samples", *_SHARED, called=_CALLED)
def barrier(
    a: First,
    b: Second,
    *,
    function: str,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="The landscape file of the line to write, or its URL.", rich_help_panel="Output"
        ),
    ] = None,
    points: Points = 25,
    **options: Any,
) -> Sequence[Any]:
    """Measures how far the loss rises on the straight line between two networks.

    landscape barrier a.pt b.pt --function my_training:callback_fn -o line.h5
    landscape plot line.h5 --kind barriers -o barrier.png
    """
    from workers.pools.first_call import FirstCall

    from ..functions import barrier as measure
    from ..record.hdf5 import LANDSCAPE
    from ..record.writer import output_file

    typed = [TypedCheckpoint.read(text) for text in (a, b)]
    if output is not None:
        output_file(output, [item.place for item in typed], LANDSCAPE, overwrite=options["overwrite"])
    call = FirstCall(load_function(function), options)
    first, last, names = _ends(typed, call.space)
    return _show_barrier(measure(first, last, call, points, names=names, output=output, **options))


@with_options(
    "function", "output", "kind", "bends", "steps", "learning_rate", "batch_size", "align", "points", "device_ids",
    "num_samples", *_SHARED,
    called=_CALLED,
)  # fmt: skip
def connect(
    a: First,
    b: Second,
    *,
    function: str,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="The landscape file of the curve, or its URL; the path is kept beside it.",
            rich_help_panel="Output",
        ),
    ],
    kind: Annotated[str, choice(KINDS, help="A smooth curve, or straight from bend to bend.")] = "bezier",
    bends: Annotated[int, typer.Option(help="Control points between the two networks.")] = 1,
    steps: Annotated[int, typer.Option(help="Steps of Adam.")] = 500,
    learning_rate: Annotated[float, typer.Option(help="Of the first step; it falls linearly to zero.")] = 0.01,
    batch_size: Annotated[int, typer.Option(help="Samples of a step.")] = 64,
    align: Annotated[
        bool, typer.Option("--align", help="Put the hidden units of B in the order of A's first.")
    ] = False,
    points: Points = 25,
    **options: Any,
) -> Sequence[Any]:
    """Finds a curve between two networks along which the loss stays low, and measures it (PyTorch).

    landscape connect a.pt b.pt --function my_training:callback_fn -o curve.h5
    landscape plot line.h5 curve.h5 --kind barriers -o both.png
    """
    from workers.pools.first_call import FirstCall

    from ..measure import Measure
    from ..paths.alignment import align as align_weights
    from ..paths.fitting import curve_beside
    from ..record.hdf5 import LANDSCAPE
    from ..record.options import split_options
    from ..record.run import Run
    from ..record.writer import output_file
    from ..replacing import check_no_input

    typed = [TypedCheckpoint.read(text) for text in (a, b)]
    inputs = [item.place for item in typed]
    place = output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"])
    check_no_input("output", curve_beside(place), inputs)
    # For alignment it is called here anyway.
    call = FirstCall(load_function(function), None if align else options)
    first, last, names = _ends(typed, call.space)
    if align:
        aligned = align_weights(last, to=first, network=call.network(), example=call.example(_COMPARED))
        typer.echo(aligned.summary())
        last, names = aligned.weights, names or [item.label for item in typed]
    run = Run.checked(options)
    shared, of_way = split_options(options)
    fitting = {name: value for name, value in shared.items() if name not in _OF_WAY}
    path = Measure(call, **fitting).connect(
        first, last, kind, bends, steps, learning_rate, batch_size, names=names, output=str(curve_beside(place))
    )
    if path is None or not path.curve.complete:
        return []
    result = Measure(call.func, **{**shared, "budget": run.left}).barrier(path, points=points, output=output, **of_way)
    if result is None:
        return []
    typer.echo(f"{result.landscape.path}\n  {path!r}\n  {result!r}")
    return [result.landscape]


def _ends(typed: Sequence[TypedCheckpoint], space: WeightSpace) -> tuple[Any, Any, list[str] | None]:
    """Returns the two networks and, where they need any, their names."""
    ends = named_weights("A and B", typed, space)
    names = list(ends) if isinstance(ends, dict) else None
    first, last = ends.values() if isinstance(ends, dict) else ends
    return first, last, names


def _show_barrier(result: Barrier | None) -> Sequence[Any]:
    if result is None:
        return []
    if result.landscape.path is not None:
        typer.echo(str(result.landscape.path))
    typer.echo(f"  {result!r}")
    return [result.landscape]


@with_options(
    "function", "output", "samples", "overwrite",
    called={"to": "A", "b": "B", "path": "--output", "example": "--function", "network": "--function"},
)  # fmt: skip
def align(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The network whose order counts: a {_FORM}.")],
    b: Annotated[str, typer.Argument(metavar="B", help=f"The network whose units are put in order: a {_FORM}.")],
    *,
    function: str,
    output: Annotated[Path, typer.Option("-o", "--output", help="The safetensors file to write: B in the order of A.")],
    samples: Annotated[
        int, typer.Option(min=1, help="How many of the first samples the outputs are compared on.")
    ] = 32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Puts the hidden units of B in the order of A's, which changes nothing that B computes (PyTorch).

    landscape align a.pt b.pt --function my_training:callback_fn -o b_aligned.safetensors
    landscape evaluate a.pt b_aligned.safetensors --function my_training:callback_fn -o line.h5
    """
    from workers.pools.first_call import FirstCall

    from ..paths.alignment import align as align_weights
    from ..replacing import check_no_input, check_replaceable_tensors

    with interruptible():
        typed = [TypedCheckpoint.read(text) for text in (a, b)]
        check_no_input("output", output, [item.place for item in typed])
        if output.exists() and not overwrite:
            raise ValueError(f"--output {output} exists already; choose another name, or pass --overwrite.")
        check_replaceable_tensors(output, "weights", None)
        call = FirstCall(load_function(function))
        target, moved = (item.weights(call.space) for item in typed)
        aligned = align_weights(moved, to=target, network=call.network(), example=call.example(samples))
        aligned.save(output)
    typer.echo(f"{output}\n  " + aligned.summary().replace("\n", "\n  "))
