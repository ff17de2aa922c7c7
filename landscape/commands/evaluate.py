"""The command ``evaluate``: planes that need no run directory, and a landscape file on another grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..planes import from_weights
from ..planes.axis_curvature import WHICH
from ..planes.plane import Plane
from ..planes.plane_file import read_directions
from ..record.hdf5 import LANDSCAPE
from ..record.option import Option
from ..record.options import OPTIONS
from ..record.writer import output_file
from . import regrid
from .arguments import check_left_out, integers, load_function, needed, one_or_each
from .options import OUTPUT, SURVEY_OPTIONS, with_options
from .typed_checkpoint import TypedCheckpoint, named_weights

if TYPE_CHECKING:
    from workers.pools.first_call import FirstCall

_CHECKPOINTS = (
    "Checkpoint files, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER; NAME=FILE names one in pictures. Without any, "
    "the weights of the network that the function returns. Or one landscape file."
)
_KIND = (
    "random (plane) and random-line around one; line through two; through three; pca of a run's checkpoints; saved: "
    "the file of a plane; own directions; hessian and ggn: the eigenvectors --which of the Hessian or the Gauss-Newton "
    "matrix. auto: around one, through two, or own where --directions is given."
)


@dataclass(frozen=True)
class _Asked:
    """What a plane is made of."""

    checkpoints: Sequence[TypedCheckpoint]
    call: FirstCall
    directions: Sequence[Path]
    numbers: Sequence[str]
    seed: int
    options: dict[str, Any]
    measured: dict[str, Any]  # on what and where the plane itself is found, as ``hessian_plane`` takes it

    def origin(self) -> dict[str, Any]:
        """Returns the arguments of a plane around one set of weights."""
        space = self.call.space
        if not self.checkpoints:
            return {"origin": self.call.network(), "network": space, **self.options}
        (only,) = self.checkpoints
        name = only.label if only.name or only.is_run else None
        return {"origin": only.weights(space), "network": space, "name": name, **self.options}


def _plane(kind: str, asked: _Asked) -> Plane:
    """Returns the plane or the line of a kind."""
    if kind == "saved":
        return Plane.load(asked.checkpoints[0].place)
    if kind == "pca":
        return _pca(asked)
    if kind in ("line", "through"):
        make: Callable[..., Plane] = from_weights.line_between if kind == "line" else from_weights.plane_through
        found = named_weights("CHECKPOINTS", asked.checkpoints, asked.call.space)
        return make(*([found] if isinstance(found, dict) else found), network=asked.call.space)
    if kind == "own":
        if not asked.directions:
            raise ValueError("--directions is missing: --kind own needs one or two safetensors files of directions.")
        return from_weights.custom_plane(directions=read_directions(asked.directions), **asked.origin())
    if kind in ("hessian", "ggn"):
        from ..functions import hessian_plane

        origin = {name: value for name, value in asked.origin().items() if name != "network"}
        return hessian_plane(callback_fn=asked.call.func, matrix=kind, seed=asked.seed, **origin, **asked.measured)
    make = from_weights.random_plane if kind == "random" else from_weights.random_line
    return make(**asked.origin(), seed=asked.seed)


def _pca(asked: _Asked) -> Plane:
    found, space = asked.checkpoints, asked.call.space
    if len({bool(item.name) for item in found}) > 1:
        raise ValueError("CHECKPOINTS must have NAME= in front of each, the name of its run, or none of them.")
    wholes = [item.is_run and item.number is None for item in found]
    names = dict.fromkeys(item.name for item in found)
    runs: Any = {}
    for name in names:
        of_run = [(item, whole) for item, whole in zip(found, wholes, strict=True) if item.name == name]
        if len(of_run) == 1 and of_run[0][1]:
            runs[name] = of_run[0][0].run()
        elif any(whole for _, whole in of_run) and (name or not all(wholes)):
            raise ValueError(
                "CHECKPOINTS of one run must be files or RUN_DIR@NUMBER; a whole RUN_DIR is a run by itself."
            )
        else:
            runs[name] = [item.run() if whole else item.weights(space) for item, whole in of_run]
    numbers = _numbers(asked.numbers)
    if "" not in names:
        return from_weights.pca_plane(runs, network=space, numbers=numbers or None, **asked.options)
    if set(numbers) - {""}:
        raise ValueError("--numbers must be numbers alone where CHECKPOINTS have no NAME= in front.")
    return from_weights.pca_plane(runs[""], network=space, numbers=numbers.get(""), **asked.options)


def _numbers(texts: Sequence[str]) -> dict[str, list[int]]:
    """Returns the numbers of each run; the key "" where no run is named."""
    found = {}
    for text in texts:
        name, sign, rest = text.rpartition("=")
        found[name if sign else ""] = integers("--numbers", rest) or []
    return found


_SCALED = ("normalization", "perturb_one_dimensional")
_BENDING = ("which", "rise")
_ONE_OR_NONE = (range(2), "one checkpoint or none")
# How many checkpoints each kind takes, in words too, and which options it has beside the survey's.
_KINDS: Mapping[str, tuple[tuple[range, str], tuple[str, ...]]] = {
    "random": (_ONE_OR_NONE, _SCALED),
    "random-line": (_ONE_OR_NONE, _SCALED),
    "line": ((range(2, 3), "two checkpoints"), ()),
    "through": ((range(3, 4), "three checkpoints"), ()),
    "pca": ((range(1, 2**31), "a run directory, or at least three checkpoints"), ("centering", "numbers")),
    "saved": ((range(1, 2), "the file of a plane"), ()),
    "hessian": (_ONE_OR_NONE, _BENDING),
    "ggn": (_ONE_OR_NONE, _BENDING),
    "own": (_ONE_OR_NONE, ("normalization", "directions")),
}
_OF_PLANES: Mapping[str, Option] = {
    "directions": Option(None, help="A safetensors file with an array for each parameter; twice for a plane, or once "
        "the file that --save-directions wrote.", typed=list[Path] | None, panel="Directions"),
    "normalization": OPTIONS["normalization"].or_none(str | None, "Scale of random or own directions; by default "
        "filter or none."),
    "perturb_one_dimensional": OPTIONS["perturb_one_dimensional"].or_none(bool | None,
        flags=("--perturb-one-dimensional",)),
    "centering": OPTIONS["centering"].or_none(str | None),
    "numbers": Option(None, help="Of pca: the step or epoch of each checkpoint, such as 1,2,3; RUN=1,2,3 for each "
        "named run.", typed=list[str] | None, panel="Directions"),
    "which": OPTIONS["which"].or_none(str | None, f"One or two eigenvectors: of {', '.join(WHICH)}."),
    "rise": OPTIONS["rise"].or_none(float | None),
}  # fmt: skip


@with_options(
    "function", "output", "kind", "size", "factor", *_OF_PLANES, "run", "device_ids", "num_samples", *SURVEY_OPTIONS,
    table={
        "output": replace(OUTPUT, help="The landscape file to write, or its URL; of a landscape file, where the result "
            "goes instead."),
        "kind": Option("auto", ("auto", *_KINDS), help=_KIND, panel="Directions"),
        "size": Option(None, help="Grid points per axis, such as 40 (when absent), or 40x20 for x and y.",
            typed=str | None, panel="Grid"),
        "factor": Option(None, help="Of a landscape file: into how many each cell is divided, 2, or 2x1 for x and y.",
            typed=str | None, panel="Grid"),
        **_OF_PLANES,
        **regrid.OPTIONS_OF_FILES,
    },
    called={**dict.fromkeys(("checkpoints", "origin", "summary_dir"), "CHECKPOINTS"), **regrid.CALLED},
)  # fmt: skip
def evaluate(
    checkpoints: Annotated[
        list[str] | None, typer.Argument(metavar="CHECKPOINT", help=_CHECKPOINTS, show_default=False)
    ] = None,
    *,
    function: str | None,
    kind: str,
    output: str | None,
    size: str | None,
    factor: str | None,
    run: str | None,
    **options: Any,
) -> Sequence[Any]:
    """Measures a plane or a line around or through checkpoints, or a landscape file on a finer or a wider grid.

    landscape evaluate best.pt --function my_training:callback_fn -o best.h5
    landscape evaluate SGD=sgd.pt Adam=adam.pt --function my_training:callback_fn -o line.h5
    landscape evaluate a.pt b.pt c.pt --kind through --function my_training:callback_fn -o abc.h5
    landscape evaluate best.pt --kind hessian --which top,bottom --function my_training:callback_fn -o saddle.h5
    landscape evaluate best.h5 --factor 2
    landscape evaluate best.h5 --limits=-2,2

    In a landscape file what is measured is kept, and the same command continues. Every point is kept with --factor, and
    with a --size whose cells divide those of the file (79 for 40 points); any other size goes into a new file. With
    --limits or --margin whole cells are added until the grid reaches as far as asked.
    """
    from workers.pools.first_call import FirstCall

    from ..functions import evaluate as measure

    found = [TypedCheckpoint.read(text) for text in checkpoints or ()]
    of_plane = {name: value for name in _OF_PLANES if (value := options.pop(name)) not in (None, [])}
    # Only a landscape file can be meant where these are given.
    is_file = factor is not None or run is not None
    if is_file and (kind != "auto" or len(found) != 1):
        raise ValueError("--factor and --run are for one landscape file in place of CHECKPOINTS, without --kind.")
    if kind == "auto" and len(found) == 1 and (is_file or regrid.is_landscape_file(found[0].place)):
        check_left_out(regrid.OF_A_FILE, of_plane)
        return regrid.change(found[0].place, function, run, output, size, factor, options)
    function = needed("--function", function, "give module:function, which returns loss, network, data and metrics")
    output = needed("--output", output, "give the landscape file to write, such as -o plane.h5")
    options = {name: OPTIONS[name].default if value is None else value for name, value in options.items()}
    chosen = _choose(kind, len(found), of_plane)
    directions, numbers = of_plane.pop("directions", ()), of_plane.pop("numbers", ())
    points = one_or_each("--size", size or "40", "40, or two such as 40x20")
    # Before eigenvectors are searched.
    inputs = [*(item.place for item in found), *directions]
    output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"])
    # Without a checkpoint the network is needed here anyway.
    call = FirstCall(load_function(function), options if found else None)
    shared = ("num_samples", "samples", "seed_each_point", "address", "progress", "device_ids", "dry_run")
    # Of the same plane: what an earlier call found is read.
    where = {**{name: options[name] for name in shared}, "kept_beside": None if options["overwrite"] else output}
    plane = _plane(chosen, _Asked(found, call, directions, numbers, options["seed"], of_plane, where))
    return regrid.show_landscape(measure(plane, call, size=points, output=output, **options))


def _choose(kind: str, count: int, of_plane: Mapping[str, Any]) -> str:
    """Returns the kind of plane, once it fits what else was typed."""
    if kind == "auto":
        if count > 2:
            raise ValueError(
                f"--kind is missing: {count} checkpoints may be a run's (--kind pca)"
                + (" or three networks (--kind through)." if count == 3 else ", or too many for a line.")
            )
        kind = "own" if "directions" in of_plane else ("random", "random", "line")[count]
    (counts, wanted), options = _KINDS[kind]
    if count not in counts:
        raise ValueError(f"--kind {kind} needs {wanted}, but got {count}.")
    for name in of_plane:
        if name not in options:
            kinds = " or ".join(f"--kind {item}" for item, (_, others) in _KINDS.items() if name in others)
            raise ValueError(f"--{name.replace('_', '-')} must be left out for --kind {kind}; it belongs to {kinds}.")
    return kind
