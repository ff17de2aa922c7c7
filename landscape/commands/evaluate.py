"""The command ``evaluate``: planes that need no run directory, and a landscape file on another grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collectors.files.places import is_url
from collectors.networks.weight_space import WeightSpace

from ..errors import OTHER_GRID, OTHER_GRID_ALONG_EIGENVECTORS, OTHER_GRID_OF_CURVE
from ..planes import from_weights
from ..planes.axis_curvature import WHICH
from ..planes.plane import Plane
from ..planes.plane_file import directions_path, read_directions
from ..record.hdf5 import LANDSCAPE
from ..record.option import Option
from ..record.options import OPTIONS
from ..record.run import Run
from ..record.whole_file import holds_ours, path_of
from ..record.writer import output_file
from ..replacing import check_no_input
from .arguments import TypedCheckpoint, check_left_out, integers, load_function, needed, one_or_each
from .options import OUTPUT, SURVEY_OPTIONS, WORKER_OPTIONS, with_options

if TYPE_CHECKING:
    from workers.pools.first_call import FirstCall

    from ..landscape import Landscape

# More than a name could lead anywhere: the text comes from a file, which somebody else may have written.
_REMEMBERED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_AS_BEFORE = ", or as the landscape file has it."
_OF_A_FILE = "for a landscape file, which says how it was measured"
_OF_FILES: Mapping[str, Option] = {
    "function": Option(None, help="module:function of the callback_fn; the working directory is searched first. Of a "
        "landscape file by default the one that it names."),
    "run": Option(None, help="Of a landscape file: its run directory; by default the file's folder, or where the "
        "file says.", panel="Directions"),
    "sampling": OPTIONS["sampling"].or_none(str | None, "full (every point is measured) or adaptive (some are, the "
        f"others interpolated); by default full{_AS_BEFORE}"),
    "tolerance": OPTIONS["tolerance"].or_none(float | None, "Largest estimated error of the loss in adaptive sampling, "
        f"as a share of the range of all losses; by default 0.01{_AS_BEFORE}"),
    "relative_tolerance": OPTIONS["relative_tolerance"].or_none(bool | None, "Whether the tolerance is a share of the "
        f"loss at each point instead; by default not{_AS_BEFORE}"),
    "margin": replace(OPTIONS["margin"], help="How far the grid reaches beyond the path on each side, as a share of "
        "its range (by default 0.2); without a path, of [-1, 1]."),
}  # fmt: skip
_KEPT = (
    *WORKER_OPTIONS, "device_ids", "budget", "progress", "plan", "sample_memory", "compile", "dry_run", "sampling",
    "tolerance", "relative_tolerance", "limits", "margin", "run", "output",
)  # fmt: skip
_WHERE = (*WORKER_OPTIONS, "device_ids")
_CALLED = {
    OTHER_GRID: "Put that file back, if the landscape was moved or copied without it. Or run the command that measured "
    "the landscape (landscape evaluate or landscape connect) once more, with another --size or --points and the same "
    "--output: points that both grids have are kept, and --save-directions writes that file.",
    OTHER_GRID_OF_CURVE: "Run the `landscape connect` that made it once more, with other --points and the same "
    "--output: points that both grids have are kept.",
    OTHER_GRID_ALONG_EIGENVECTORS: OTHER_GRID_ALONG_EIGENVECTORS.removesuffix(" Or pass plane=plane."),
    "file": "FILE",
}
_CHECKPOINTS = (
    "Checkpoint files, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER; NAME=FILE names one in pictures. Without any, "
    "the weights of the network that the function returns. Or one landscape file."
)
_KIND = (
    "random (plane) and random-line around one; line through two; through three; pca of a run's checkpoints; saved: "
    "the file of a plane; own directions; hessian and ggn: the eigenvectors --which of the Hessian or the Gauss-Newton "
    "matrix. auto: around one, through two, or own where --directions is given."
)


def _plane(
    kind: str,
    found: Sequence[TypedCheckpoint],
    call: FirstCall,
    options: Mapping[str, Any],  # of the kind
    seed: int,
    where: Mapping[str, Any],  # on what and where eigenvectors are searched, as ``hessian_plane`` takes it
) -> Plane:
    if kind == "saved":
        return Plane.load(found[0].place)
    if kind == "pca":
        return _pca(found, call.space, **options)
    if kind in ("line", "through"):
        make: Callable[..., Plane] = from_weights.line_between if kind == "line" else from_weights.plane_through
        named = TypedCheckpoint.named_weights("CHECKPOINTS", found, call.space)
        return make(*([named] if isinstance(named, dict) else named), network=call.space)
    if kind == "own" and "directions" not in options:
        raise ValueError("--directions is missing: --kind own needs one or two safetensors files of directions.")
    around: dict[str, Any] = {**options, "origin": found[0].weights(call.space) if found else call.network()}
    if found and (found[0].name or found[0].is_run):
        around["name"] = found[0].label
    if kind in ("hessian", "ggn"):
        from ..functions import hessian_plane

        return hessian_plane(callback_fn=call.func, matrix=kind, seed=seed, **around, **where)
    around["network"] = call.space
    if kind == "own":
        return from_weights.custom_plane(**{**around, "directions": read_directions(options["directions"])})
    make = from_weights.random_plane if kind == "random" else from_weights.random_line
    return make(**around, seed=seed)


def _pca(found: Sequence[TypedCheckpoint], space: WeightSpace, *, numbers: Sequence[str] = (), **options: Any) -> Plane:
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
    # The numbers of each run; where no run is named, those of "".
    of_runs = {}
    for text in numbers:
        name, _, rest = text.rpartition("=")
        of_runs[name] = integers("--numbers", rest)
    if "" not in names:
        return from_weights.pca_plane(runs, network=space, numbers=of_runs or None, **options)
    if set(of_runs) - {""}:
        raise ValueError("--numbers must be numbers alone where CHECKPOINTS have no NAME= in front.")
    return from_weights.pca_plane(runs[""], network=space, numbers=of_runs.get(""), **options)


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
            panel="Grid"),
        "factor": Option(None, help="Of a landscape file: into how many each cell is divided, 2, or 2x1 for x and y.",
            panel="Grid"),
        **_OF_PLANES,
        **_OF_FILES,
    },
    called={**dict.fromkeys(("checkpoints", "origin", "summary_dir"), "CHECKPOINTS"), **_CALLED},
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
    if kind == "auto" and len(found) == 1 and (is_file or _is_landscape_file(found[0].place)):
        check_left_out(_OF_A_FILE, of_plane, {})
        return _change(found[0].place, function, size, factor, {**options, "run": run, "output": output})
    function = needed("--function", function, "give module:function, which returns loss, network, data and metrics")
    output = needed("--output", output, "give the landscape file to write, such as -o plane.h5")
    options = {name: OPTIONS[name].default if value is None else value for name, value in options.items()}
    chosen = _choose(kind, len(found), of_plane)
    points = one_or_each("--size", size or "40", "40, or two such as 40x20")
    # Before eigenvectors are searched.
    inputs = [*(item.place for item in found), *of_plane.get("directions", ())]
    place = output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"], rehearsal=options["dry_run"])
    if options["save_directions"]:
        check_no_input("output", directions_path(place), of_plane.get("directions", ()))
    # Without a checkpoint the network is needed here anyway.
    call = FirstCall(load_function(function), options if found else None)
    shared = ("num_samples", "samples", "seed_each_point", "sample_memory", "plan", "progress", "dry_run", *_WHERE)
    # Of the same plane: what an earlier call found is read.
    where = {**{name: options[name] for name in shared}, "kept_beside": None if options["overwrite"] else output}
    # Eigenvectors are found and the plane is measured within one budget.
    clock = Run.checked(options)
    plane = _plane(chosen, found, call, of_plane, options["seed"], where)
    if options["budget"] is not None and chosen in ("hessian", "ggn"):
        options["budget"] = max(clock.left or 0.0, 1.0)
    return _shown(measure(plane, call, size=points, output=output, **options))


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


def _is_landscape_file(place: str) -> bool:
    """Returns whether it is a file of ours, and no checkpoint; a FileNotFoundError where it may be either."""
    if not place.lower().endswith(".h5"):
        return False
    if not (is_url(place) or Path(place).exists()):
        raise FileNotFoundError(f"there is no file {place}. Give a checkpoint, or a landscape file, that is there.")
    try:
        return holds_ours(path_of(place))
    except OSError:
        return False  # reading it says what is wrong


def _change(
    file: str, function: str | None, size: str | None, factor: str | None, options: Mapping[str, Any]
) -> Sequence[Landscape]:
    """Measures a landscape on a finer or a wider grid; the options are those that were typed for ``evaluate``."""
    from ..functions import refine, widen

    check_left_out(_OF_A_FILE, {name: options[name] for name in options if name not in _KEPT}, OPTIONS)
    changed = {name: value for name, value in options.items() if name in _KEPT}
    reach = {name: changed.pop(name) for name in ("margin", "limits")}
    is_finer, is_wider = (any(value is not None for value in values) for values in ((size, factor), reach.values()))
    if is_finer == is_wider:
        raise ValueError(
            f"--size or --factor must be given for a finer grid of {file}, or --margin or --limits for a wider one"
            + (": one of the two in a call." if is_finer else ".")
        )
    called = load_function(_remembered(file) if function is None else function)
    if is_wider:
        return _shown(widen(file, called, **reach, **changed))
    example = "2, or two such as 2x1"
    cells = {"size": one_or_each("--size", size, example), "factor": one_or_each("--factor", factor, example)}
    return _shown(refine(file, called, **cells, **changed))


def _shown(landscape: Landscape | None) -> Sequence[Landscape]:
    if landscape is None:
        return []
    typer.echo(f"{landscape.path}\n  {landscape!r}")
    return [landscape]


def _remembered(file: str) -> str:
    """Returns the function that a file names, if its module lies in the working directory."""
    from ..grid.landscape_file import read_landscape
    from ..record.identity import FUNCTION

    said = read_landscape(file).attributes.get(FUNCTION)
    match = _REMEMBERED.fullmatch(said) if isinstance(said, str) else None
    if match is None:
        raise ValueError(
            f"--function is missing: {file} does not name the callback_fn that it was measured with. Pass "
            "--function module:function."
        )
    here = Path.cwd() / match[1]
    is_here = here.is_dir() if match[2] else here.with_suffix(".py").is_file() or (here / "__init__.py").is_file()
    if not is_here:
        raise ValueError(
            f"--function is missing: {file} names {said}, and the module is not in {Path.cwd()}. Run the command where "
            f"it is, or pass --function {said} if you trust the file."
        )
    typer.echo(f"--function {said}, as the file says", err=True)
    return str(said)
