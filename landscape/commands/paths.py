"""The commands about what lies between two networks: ``barrier`` and ``connect``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workers.curves.curve import KINDS

from .arguments import load_function
from .options import SURVEY_OPTIONS, choice, with_options
from .typed_checkpoint import TypedCheckpoint, named_weights

_SHARED = tuple(name for name in SURVEY_OPTIONS if name not in ("limits", "margin", "extremes"))
_CALLED = {"a": "A", "b": "B"}
_COMPARED = 32  # samples on which an alignment is verified
_NETWORK = "checkpoint file, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER; NAME= in front names it in pictures."
First = Annotated[str, typer.Argument(metavar="A", help=f"The first network: a {_NETWORK}")]
Second = Annotated[str, typer.Argument(metavar="B", help="The second network, typed likewise.")]
Points = Annotated[int, typer.Option(help="Points on the way, both ends among them.")]


@with_options("function", "output", "points", "device_ids", "num_samples", *_SHARED, called=_CALLED)
def barrier(
    a: First,
    b: Second,
    *,
    function: str,
    device_ids: Any,
    num_samples: Any,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="The landscape file of the line to write, or its URL.")
    ] = None,
    points: Points = 25,
    **options: Any,
) -> None:
    """Measures how far the loss rises on the straight line between two networks.

    landscape barrier a.pt b.pt --function my_training:callback_fn -o line.h5
    landscape plot line.h5 --kind barriers -o barrier.png
    """
    from workers.pools.first_call import FirstCall

    from ..paths.barrier import barrier_on
    from ..planes.from_weights import line_between
    from ..record.hdf5 import LANDSCAPE
    from ..record.writer import output_file

    typed = [TypedCheckpoint.read(text) for text in (a, b)]
    if output is not None:
        output_file(output, [item.place for item in typed], LANDSCAPE, overwrite=options["overwrite"])
    call = FirstCall(load_function(function), {**options, "device_ids": device_ids})
    ends = named_weights("A and B", typed, call.space)
    line = line_between(*([ends] if isinstance(ends, dict) else ends), network=call.space)
    where = {"device_ids": device_ids, "output": output, "num_samples": num_samples}
    result = barrier_on(line, call, points, **where, options=options)
    if result.landscape.path is not None:
        typer.echo(str(result.landscape.path))
    typer.echo(f"  {result!r}")


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
    device_ids: Any,
    num_samples: Any,
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="The landscape file of the curve, or its URL; the path is kept beside it."),
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
) -> None:
    """Finds a curve between two networks along which the loss stays low, and measures it (PyTorch).

    landscape connect a.pt b.pt --function my_training:callback_fn -o curve.h5
    landscape plot line.h5 curve.h5 --kind barriers -o both.png
    """
    from workers.pools.first_call import FirstCall

    from ..paths.alignment import align as align_weights
    from ..paths.connecting import connect as fit
    from ..paths.fitting import curve_beside
    from ..record.hdf5 import LANDSCAPE
    from ..record.options import CurveOptions, options_of
    from ..record.run import Run
    from ..record.writer import output_file
    from ..replacing import check_no_input

    where = {"device_ids": device_ids, "num_samples": num_samples}
    typed = [TypedCheckpoint.read(text) for text in (a, b)]
    inputs = [item.place for item in typed]
    place = output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"])
    check_no_input("output", curve_beside(place), inputs)
    # For alignment it is called here anyway.
    call = FirstCall(load_function(function), None if align else {**options, "device_ids": device_ids})
    ends = named_weights("A and B", typed, call.space)
    first, last = ends.values() if isinstance(ends, dict) else ends
    names = list(ends) if isinstance(ends, dict) else None
    if align:
        aligned = align_weights(last, to=first, network=call.network(), example=call.example(_COMPARED))
        typer.echo(aligned.summary())
        last, names = aligned.weights, names or [item.label for item in typed]
    run = Run.checked(options)
    shared = {name: options[name] for name in options_of(CurveOptions) if name in options and name != "plan"}
    path = fit(
        first, last, call, kind, bends, steps, learning_rate, batch_size, options["seed"],
        names=names, output=str(curve_beside(place)), **where, **shared,
    )  # fmt: skip
    if not path.curve.complete:
        return
    result = path.barrier(call.func, points, output=output, **where, **{**options, "budget": run.left})
    typer.echo(f"{result.landscape.path}\n  {path!r}\n  {result!r}")
