"""The command ``connect``: what lies between two networks, on the straight line or on a curve of low loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.curves.curve import KINDS

from ..record.hdf5 import LANDSCAPE
from ..record.option import Option
from ..record.options import OPTIONS, split_options
from ..record.run import Run
from ..record.writer import output_file
from ..replacing import check_no_input, check_replaceable_tensors
from .arguments import TypedCheckpoint, check_left_out, load_function, needed, options_named
from .options import OUTPUT, SURVEY_OPTIONS, with_options

if TYPE_CHECKING:
    from collectors.files.places import AnyPath
    from workers.pools.first_call import FirstCall

    from ..paths.alignment import Aligned

_SHARED = tuple(name for name in SURVEY_OPTIONS if name not in ("limits", "margin", "share"))
# A curve is fitted with the loss alone, by a plan of its own.
_OF_WAY = (
    "plan", "groups", "extremes", "keep_samples", "buffers", "recalibration_batch_size", "precision", "seed_each_point",
    "compile",
)  # fmt: skip
_COMPARED = 32  # samples on which an alignment is verified
_WEIGHTS = ".safetensors"
_NETWORK = "checkpoint file, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER; NAME= in front names it in pictures."
_LINE: Mapping[str, Option] = {
    "kind": Option("line", ("line", *KINDS), help="The straight line; or a curve along which the loss stays low "
        "(PyTorch, JAX, Keras, MindSpore): bezier is smooth, polygon straight from bend to bend."),
    "points": Option(25, help="Points on the way, both ends among them.", panel="Grid"),
}  # fmt: skip
_FITTING: Mapping[str, Option] = {
    "bends": Option(1, help="Control points between the two networks.", panel="Curve"),
    "steps": Option(500, help="Steps of Adam.", panel="Curve"),
    "learning_rate": Option(0.01, help="Of the first step; it falls linearly to zero.", panel="Curve"),
    "batch_size": Option(64, help="Samples of a step.", panel="Curve"),
}


@with_options(
    "function", "output", "kind", "align", "points", *_FITTING, "device_ids", "num_samples", *_SHARED,
    table={
        "output": replace(OUTPUT, help="The landscape file of the way, or its URL; a curve is kept beside it. With "
            f"--align also a {_WEIGHTS} file: B in the order of A, and nothing is measured."),
        **_LINE,
        "align": Option(False, help="Put the hidden units of B in the order of A's first; B computes the same "
            "afterwards (PyTorch).", flags=("--align",)),
        **_FITTING,
    },
    called={"a": "A", "b": "B"},
)  # fmt: skip
def connect(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The first network: a {_NETWORK}")],
    b: Annotated[str, typer.Argument(metavar="B", help="The second network, typed likewise.")],
    *,
    function: str,
    kind: str,
    output: str | None,
    align: bool,
    points: int,
    **options: Any,
) -> Sequence[Any]:
    """Measures how far the loss rises between two networks: on the straight line, or on a curve that avoids the rise.

    landscape connect a.pt b.pt --function my_training:callback_fn -o line.h5
    landscape connect a.pt b.pt --kind bezier --function my_training:callback_fn -o curve.h5
    landscape plot line.h5 curve.h5 --kind barriers -o both.png
    landscape connect a.pt b.pt --align --function my_training:callback_fn -o b_aligned.safetensors
    """
    from workers.pools.first_call import FirstCall

    from ..functions import barrier as measure_line
    from ..paths.fitting import curve_beside

    typed = [TypedCheckpoint.read(text) for text in (a, b)]
    inputs = [item.place for item in typed]
    fitting = {name: options.pop(name) for name in _FITTING}
    if kind == "line":
        check_left_out("for --kind line, which needs no fitting", fitting, _FITTING)
    else:
        kept = {"save_directions": options["save_directions"]}
        check_left_out("for a curve, whose control points are kept in any case", kept, {})
    if align and output is not None and output.lower().endswith(_WEIGHTS):
        nothing = f"with --output {output}, for which nothing is measured"
        rest = {name: value for name, value in options.items() if name not in ("overwrite", "device_ids", "progress")}
        check_left_out(nothing, {"kind": kind, "points": points, **rest}, {**OPTIONS, **_LINE})
        _write_aligned(typed, Path(output), load_function(function), overwrite=options["overwrite"])
        return []
    if kind != "line":
        output = needed("--output", output, "give the landscape file of the curve, such as -o curve.h5")
    if output is not None:
        place = output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"], rehearsal=options["dry_run"])
        if kind != "line":
            check_no_input("output", curve_beside(place), inputs)
    # For alignment it is called here anyway.
    call = FirstCall(load_function(function), None if align else options)
    ends = TypedCheckpoint.named_weights("A and B", typed, call.space)
    names = list(ends) if isinstance(ends, dict) else None
    first, last = ends.values() if isinstance(ends, dict) else ends
    if align:
        aligned = _aligned(call, first, last)
        typer.echo(aligned.summary())
        labels = [item.label for item in typed]
        last, names = aligned.weights, names or (labels if labels[0] != labels[1] else None)
    if kind == "line":
        found = [measure_line(first, last, call, points, names=names, output=output, **options)]
    else:
        found = _on_a_curve(call, (first, last), names, points, {"kind": kind, **fitting}, place, options)
    if not found or found[-1] is None:
        return []
    result = found[-1]
    if result.landscape.path is not None:
        typer.echo(str(result.landscape.path))
    for item in found:
        typer.echo(f"  {item!r}")
    return [result.landscape]


def _on_a_curve(
    call: FirstCall, ends: tuple[Any, Any], names: Sequence[str] | None, points: int, fitting: Mapping[str, Any],
    place: AnyPath, options: Mapping[str, Any],
) -> list[Any]:  # fmt: skip
    """Fits a curve and measures along it, within one budget; returns both, nothing before the curve is complete."""
    from ..functions import barrier
    from ..measure import Measure
    from ..paths.fitting import curve_beside, read_curve
    from ..paths.path import Path

    run = Run.checked(options)
    shared, of_way = split_options(options)
    of_curve = {name: value for name, value in shared.items() if name not in _OF_WAY}
    kept = curve_beside(place)
    path = Measure(call, **of_curve).connect(*ends, **fitting, names=names, output=str(kept))
    if options["dry_run"]:
        curve = read_curve(kept) if kept.exists() and not options["overwrite"] else None
        if curve is not None and curve.complete:
            path = Path(curve)
        else:
            barrier(*ends, call, points, names=names, **options)  # as many points as along the curve
    if path is None or not path.curve.complete:
        return []
    measure = Measure(call.func, **{**shared, "budget": run.left})
    return [path, measure.barrier(path, points=points, output=str(place), **of_way)]


def _aligned(call: FirstCall, first: Any, last: Any) -> Aligned:
    from ..paths.alignment import align

    return align(last, to=first, network=call.network(), example=call.example(_COMPARED))


def _write_aligned(
    typed: Sequence[TypedCheckpoint], output: Path, function: Callable[[], Any], *, overwrite: bool
) -> None:
    from workers.pools.first_call import FirstCall

    check_no_input("output", output, [item.place for item in typed])
    if output.exists() and not overwrite:
        raise ValueError(f"--output {output} exists already; choose another name, or pass --overwrite.")
    with options_named({"to": "A", "path": "--output", "example": "--function", "network": "--function"}):
        check_replaceable_tensors(output, "weights", None)
        call = FirstCall(function)
        aligned = _aligned(call, *(item.weights(call.space) for item in typed))
        aligned.save(output)
    typer.echo(f"{output}\n  " + aligned.summary().replace("\n", "\n  "))
