"""The command ``evaluate``: a plane or a line through checkpoint files, which needs no run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..planes.axis_curvature import WHICH
from ..planes.directions import NORMALIZATIONS
from ..planes.pca import CENTERINGS
from ..record.options import OPTIONS
from .arguments import given, integers, load_function
from .options import SURVEY_OPTIONS, choice, explained, with_options
from .typed_checkpoint import TypedCheckpoint, named_weights

if TYPE_CHECKING:
    from workers.pools.first_call import FirstCall

    from ..planes.plane import Plane

_CHECKPOINTS = (
    "Checkpoint files, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER; NAME=FILE names one in pictures. Without any, "
    "the weights of the network that the function returns."
)
_KIND = (
    "random (plane) and random-line around one; line through two; through three; pca of a run's checkpoints; saved: "
    "the file of a plane; own directions; hessian and ggn: the eigenvectors --which of the Hessian or the Gauss-Newton "
    "matrix. auto: around one, through two, or own where --directions is given."
)


@dataclass(frozen=True)
class _Kind:
    """A plane or a line that can be asked for.

    Attributes:
        make: builds it.
        counts: how many checkpoints it takes, and in words.
        options: those that it has beside the survey's.
    """

    make: Callable[[_Asked], Plane]
    counts: tuple[range, str]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Asked:
    """What a plane is made of.

    Attributes:
        measured: on what and where the plane itself is found, as ``hessian_plane`` takes it.
    """

    checkpoints: Sequence[TypedCheckpoint]
    call: FirstCall
    directions: Sequence[Path]
    numbers: Sequence[str]
    seed: int
    options: dict[str, Any]
    measured: dict[str, Any]

    def origin(self) -> dict[str, Any]:
        """Returns the arguments of a plane around one set of weights."""
        space = self.call.space
        if not self.checkpoints:
            return {"origin": self.call.network(), "network": space, **self.options}
        (only,) = self.checkpoints
        name = only.label if only.name or only.is_run else None
        return {"origin": only.weights(space), "network": space, "name": name, **self.options}


def _random(asked: _Asked) -> Plane:
    from ..planes.from_weights import random_plane

    return random_plane(**asked.origin(), seed=asked.seed)


def _random_line(asked: _Asked) -> Plane:
    from ..planes.from_weights import random_line

    return random_line(**asked.origin(), seed=asked.seed)


def _own(asked: _Asked) -> Plane:
    from ..planes.direction_files import read_directions
    from ..planes.from_weights import custom_plane

    if not asked.directions:
        raise ValueError("--directions is missing: --kind own needs one or two safetensors files of directions.")
    return custom_plane(directions=read_directions(asked.directions), **asked.origin())


def _hessian(asked: _Asked, matrix: str = "hessian") -> Plane:
    from ..curvature.hessian_plane import hessian_plane

    origin = asked.origin()
    del origin["network"]
    return hessian_plane(callback_fn=asked.call.func, matrix=matrix, seed=asked.seed, **origin, **asked.measured)


def _ggn(asked: _Asked) -> Plane:
    return _hessian(asked, "ggn")


def _saved(asked: _Asked) -> Plane:
    from ..planes.plane import Plane

    return Plane.load(asked.checkpoints[0].place)


def _through(asked: _Asked) -> Plane:
    from ..planes.from_weights import line_between, plane_through

    make: Callable[..., Plane] = line_between if len(asked.checkpoints) == 2 else plane_through
    space = asked.call.space
    found = named_weights("CHECKPOINTS", asked.checkpoints, space)
    return make(found, network=space) if isinstance(found, dict) else make(*found, network=space)


def _pca(asked: _Asked) -> Plane:
    from ..planes.from_weights import pca_plane

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
        return pca_plane(runs, network=space, numbers=numbers or None, **asked.options)
    if set(numbers) - {""}:
        raise ValueError("--numbers must be numbers alone where CHECKPOINTS have no NAME= in front.")
    return pca_plane(runs[""], network=space, numbers=numbers.get(""), **asked.options)


def _numbers(texts: Sequence[str]) -> dict[str, list[int]]:
    """Returns the numbers of each run; the key "" where no run is named."""
    found = {}
    for text in texts:
        name, sign, rest = text.rpartition("=")
        found[name if sign else ""] = integers("--numbers", rest) or []
    return found


_SCALED = ("normalization", "perturb_one_dimensional")
_BENDING = ("which", "rise")
_KINDS = {
    "random": _Kind(_random, (range(2), "one checkpoint or none"), _SCALED),
    "random-line": _Kind(_random_line, (range(2), "one checkpoint or none"), _SCALED),
    "line": _Kind(_through, (range(2, 3), "two checkpoints")),
    "through": _Kind(_through, (range(3, 4), "three checkpoints")),
    "pca": _Kind(_pca, (range(1, 2**31), "a run directory, or at least three checkpoints"), ("centering", "numbers")),
    "saved": _Kind(_saved, (range(1, 2), "the file of a plane")),
    "hessian": _Kind(_hessian, (range(2), "one checkpoint or none"), _BENDING),
    "ggn": _Kind(_ggn, (range(2), "one checkpoint or none"), _BENDING),
    "own": _Kind(_own, (range(2), "one checkpoint or none"), ("normalization", "directions")),
}


@with_options(
    "function", "output", "kind", "size", "directions", "normalization", "perturb_one_dimensional", "centering",
    "numbers", "which", "rise", "device_ids", "num_samples", *SURVEY_OPTIONS,
    called=dict.fromkeys(("checkpoints", "origin", "summary_dir"), "CHECKPOINTS"),
)  # fmt: skip
def evaluate(
    checkpoints: Annotated[
        list[str] | None, typer.Argument(metavar="CHECKPOINT", help=_CHECKPOINTS, show_default=False)
    ] = None,
    *,
    function: str,
    output: Annotated[str, typer.Option("-o", "--output", help="The landscape file to write, or its URL.")],
    kind: Annotated[str, choice(("auto", *_KINDS), help=_KIND)] = "auto",
    size: Annotated[str, typer.Option(help="Grid points per axis, such as 40, or 40x20 for x and y.")] = "40",
    directions: Annotated[
        list[Path] | None,
        typer.Option(
            help="A safetensors file with an array for each parameter; twice for a plane, or once the file that "
            "--save-directions wrote.",
        ),
    ] = None,
    normalization: Annotated[
        str | None, choice(NORMALIZATIONS, help="Scale of random or own directions; by default filter or none.")
    ] = None,
    perturb_one_dimensional: Annotated[
        bool | None,
        typer.Option(
            "--perturb-one-dimensional", help=explained(OPTIONS["perturb_one_dimensional"]), show_default=False
        ),
    ] = None,
    centering: Annotated[str | None, choice(CENTERINGS, help=explained(OPTIONS["centering"]))] = None,
    numbers: Annotated[
        list[str] | None,
        typer.Option(help="Of pca: the step or epoch of each checkpoint, such as 1,2,3; RUN=1,2,3 for each named run."),
    ] = None,
    which: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"One or two eigenvectors: of {', '.join(WHICH)}.")
    ] = None,
    rise: Annotated[float | None, typer.Option(help=explained(OPTIONS["rise"]), show_default=False)] = None,
    **options: Any,
) -> None:
    """Measures a plane or a line around or through checkpoints, without a collected run.

    landscape evaluate best.pt --function my_training:callback_fn -o best.h5
    landscape evaluate SGD=sgd.pt Adam=adam.pt --function my_training:callback_fn -o line.h5
    landscape evaluate a.pt b.pt c.pt --kind through --function my_training:callback_fn -o abc.h5
    landscape evaluate best.pt --kind hessian --which top,bottom --function my_training:callback_fn -o saddle.h5
    """
    from workers.pools.first_call import FirstCall

    from ..evaluation import evaluate as measure
    from ..record.kind import LANDSCAPE
    from ..record.writer import output_file

    found = [TypedCheckpoint.read(text) for text in checkpoints or ()]
    own = {
        "normalization": normalization, "perturb_one_dimensional": perturb_one_dimensional, "centering": centering,
        "numbers": numbers or None, "directions": directions or None, "rise": rise,
        "which": which,
    }  # fmt: skip
    chosen = _choose(kind, len(found), given(**own))
    made_with = {name: value for name, value in given(**own).items() if name not in ("numbers", "directions")}
    points = _read_size(size)
    # Before eigenvectors are searched.
    inputs = [*(item.place for item in found), *(directions or ())]
    output_file(output, inputs, LANDSCAPE, overwrite=options["overwrite"])
    call = FirstCall(load_function(function))
    shared = ("num_samples", "samples", "seed_each_point", "address", "progress", "device_ids")
    # Of the same plane: what an earlier call found is read.
    where = {**{name: options[name] for name in shared}, "kept_beside": None if options["overwrite"] else output}
    plane = chosen.make(_Asked(found, call, directions or (), numbers or (), options["seed"], made_with, where))
    landscape = measure(plane, call, size=points, output=output, **options)
    typer.echo(f"{landscape.path}\n  {landscape!r}")


def _choose(kind: str, count: int, own: dict[str, Any]) -> _Kind:
    """Returns the kind of plane, once it fits what else was typed."""
    from collectors.validation import check_choice

    check_choice("--kind", kind, ("auto", *_KINDS))
    if kind == "auto":
        if count > 2:
            raise ValueError(
                f"--kind is missing: {count} checkpoints may be a run's (--kind pca)"
                + (" or three networks (--kind through)." if count == 3 else ", or too many for a line.")
            )
        kind = "own" if "directions" in own else ("random", "random", "line")[count]
    chosen = _KINDS[kind]
    if count not in chosen.counts[0]:
        raise ValueError(f"--kind {kind} needs {chosen.counts[1]}, but got {count}.")
    for name in own:
        if name not in chosen.options:
            kinds = " or ".join(f"--kind {item}" for item, other in _KINDS.items() if name in other.options)
            raise ValueError(f"--{name.replace('_', '-')} must be left out for --kind {kind}; it belongs to {kinds}.")
    return chosen


def _read_size(text: str) -> int | tuple[int, int]:
    numbers = [int(part) for part in text.lower().split("x") if part.strip().isdecimal()]
    if len(numbers) == 1 and "x" not in text.lower():
        return numbers[0]
    if len(numbers) != 2:
        raise ValueError(f"--size must be a number such as 40, or two such as 40x20, but got {text!r}.")
    return numbers[0], numbers[1]
