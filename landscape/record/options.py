"""The options of ``evaluate``, ``SummaryLandscape`` and ``landscape run``, with their defaults and explanations."""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_type_hints

from workers.measurement_plan import MeasurementPlan

_Door = TypeVar("_Door", bound=Callable[..., Any])


class SurveyOptions(TypedDict, total=False):
    """How a plane is measured; all of it may be left out. The first sentences are the command line's help.

    Attributes:
        devices_per_worker: how many GPUs each worker sees, the first of which is its ``cuda:0``; without GPUs, how
            many slots' cores it joins. A network that callback_fn spreads over them stays where it is.
        workers_per_device: how many workers share each GPU and its memory; without GPUs, a slot's cores. This or
            ``devices_per_worker`` must be 1.
        address: address of a Ray cluster to join; "local" starts a private Ray.
        seed: seed of adaptive sampling, of a random choice of samples and of the random directions that are drawn. A
            plane that is given has been drawn with a seed of its own.
        samples: which samples: "first" (in data-set order) or "random" (a seeded subset).
        buffers: "fixed" (those of the origin), "recalibrate" (normalization statistics are computed at each point),
            "interpolate" (between the networks that a line or a plane goes through) or "auto". "auto" is "interpolate"
            for ``line_between`` and ``plane_through`` of networks whose floating-point buffers differ, so that the
            surface meets each network's own loss, and "fixed" for every other plane.
        recalibration_batch_size: samples per batch while these statistics are computed.
        precision: precision of the forward passes: "float32" (full), "tf32" (on NVIDIA GPUs since Ampere) or
            "bfloat16". The last two are for PyTorch. "tf32" rounds what matrix products and convolutions of float32
            multiply; "bfloat16" runs the network under autocast, with weights in float32, and computes loss and metrics
            in float32 from its outputs. Such a surface is rounded, is another experiment than one in float32, and says
            so.
        groups: groups of samples whose losses are measured each, beside the loss of all: "target" (the classes), or a
            function of (inputs, targets) of a batch that returns a whole number for each sample. The losses are called
            ``loss[3]``, and ``loss[3]@test`` of another data set.
        seed_each_point: whether a loss that draws random numbers (a VAE, diffusion, dropout that stays on) draws the
            same ones at every point (PyTorch). PyTorch's, NumPy's and Python's generators are seeded for each batch, by
            ``seed`` and the batch's place, and put back afterwards; so the data set's own batches are kept, nothing is
            compiled, and the file says so.
        extremes: whether the largest and the lowest eigenvalue of the Hessian are measured at every point (PyTorch), as
            ``max_eigenvalue``, ``min_eigenvalue`` and ``convexity_ratio``, their |min / max|. A point then costs a
            hundred times its loss or more; the forecast says how long all takes. Needs sampling="full".
        keep_samples: whether the loss of each sample is kept at every measured point, beside the mean:
            ``landscape.samples()`` reads them. The loss must have a value for each sample; all of them may take 2 GiB
            before they are compressed.
        sampling: "full" (every grid point is measured) or "adaptive" (some are measured, the others interpolated,
            marked as such, until the estimated error of the loss is within the tolerance).
        tolerance: largest estimated error of the loss in adaptive sampling, as a share of the range of all losses.
        relative_tolerance: whether the tolerance is a share of the loss at each point instead, for logarithmic
            pictures.
        budget: how long the call may take: seconds, or text such as "30min". What is not measured by then is
            interpolated where enough is measured around it and pending elsewhere; the same call with the same
            ``output`` continues.
        limits: where the grid begins and ends: the lowest and the highest coordinate of both axes, or x0, x1, y0, y1.
            The plane's own axes are left out then.
        margin: how far the grid reaches beyond the path on each side, as a share of the path's range (0.2 by default).
            On planes without a path, as random ones are, it is a share of [-1, 1], and none by default.
        overwrite: whether a landscape file of another identity is replaced.
        save_directions: whether the plane (origin, directions, who is on it) is kept beside the landscape file, in
            ``<stem>_directions.safetensors``, which ``Plane.load`` reads.
        progress: whether a progress bar and, before it, a forecast are shown.
        plan: landscape file whose measurement plan is used again (batch size, threads, memory layout, compiling). A
            ``MeasurementPlan`` does too. With None, a file that is continued keeps its plan, and for a new one a plan
            is chosen by timing; then the last digits of a loss may differ from run to run.
        sample_memory: how much memory of a machine the samples may take: "auto" (half of what is free), bytes, or text
            such as "8GB" or "25%" (of what is free). What takes more is read anew in each pass over the data set, in
            which many points are measured (PyTorch only).
        compile: whether a PyTorch network is compiled: True, False or "auto" (where the forecast says that it pays
            off, in this run or over several). Where compiled code gives other values, the network runs eagerly, and a
            note says so.
    """

    devices_per_worker: int
    workers_per_device: int
    address: str | None
    seed: int
    samples: str
    buffers: str
    recalibration_batch_size: int
    precision: str
    groups: str | Callable[[Any, Any], Any] | None
    seed_each_point: bool
    extremes: bool
    keep_samples: bool
    sampling: str
    tolerance: float
    relative_tolerance: bool
    budget: float | str | None
    limits: Sequence[float] | None
    margin: float | None
    overwrite: bool
    save_directions: bool
    progress: bool
    plan: MeasurementPlan | str | os.PathLike[str] | None
    sample_memory: int | str
    compile: bool | str


class ChangeOptions(TypedDict, total=False):
    """How a landscape is measured on another grid; ``SurveyOptions`` explains them. All else, the file says."""

    devices_per_worker: int
    workers_per_device: int
    address: str | None
    groups: str | Callable[[Any, Any], Any] | None
    budget: float | str | None
    progress: bool
    plan: MeasurementPlan | str | os.PathLike[str] | None
    sample_memory: int | str
    compile: bool | str


class RunOptions(SurveyOptions, total=False):
    """How the landscapes of a run are measured, beside ``SurveyOptions``.

    Attributes:
        normalization: scale of the random directions: "filter", "layer", "weight" or "none".
        perturb_one_dimensional: whether the random directions also move biases and the parameters of normalization
            layers, which stay where they are otherwise.
        centering: centre of the principal directions: "none" (anchored at the last checkpoint) or "mean".
        directions: directions of the result's landscape: "random", "hessian" (along eigenvectors of the loss's Hessian,
            the directions in which it bends most), "ggn" (those of the generalised Gauss-Newton matrix) or "pca" (the
            principal directions of the last interval, which is the landscape that "train" draws anyway). Eigenvectors
            need PyTorch or JAX; they are kept beside the landscape file, and an interrupted survey goes on with them.
        which: which one or two eigenvectors: "top", "second", "third", "fourth", "fifth", "bottom". At a saddle "top"
            and "bottom" show what random directions hide.
        rise: how much the loss rises along an eigenvector to the end of its axis, as far as it is a parabola, in units
            of the loss.
        name: beginning of the file names, instead of "landscape".
        also: other runs and networks to draw on the planes of the intervals: a list of run directories, or a dict from
            names to them. A file of weights (.safetensors, .pt, ...) is a network, drawn as a mark. Runs without a name
            are called like their directories; with the path of the run itself, its name. Of another run all checkpoints
            are taken, or, if this one has several intervals, those between an interval's ends.
        plane_of: runs whose checkpoints span these planes: "all" (this run's and those of also together) or "first"
            (this run's alone). "all" keeps most of every path; a path that is only projected onto another run's plane
            shows little of itself. With "first" the plane is the run's own, so that its landscape file is continued and
            nothing in it is measured again.
        dry_run: whether only the forecast is printed: what would be measured, and how long that would take.
    """

    normalization: str
    perturb_one_dimensional: bool
    centering: str
    directions: str
    which: str | Sequence[str]
    rise: float
    name: str | None
    also: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] | None
    plane_of: str
    dry_run: bool


DEFAULTS: RunOptions = {
    "devices_per_worker": 1, "workers_per_device": 1, "address": None, "seed": 0, "samples": "first", "buffers": "auto",
    "recalibration_batch_size": 256, "precision": "float32", "groups": None, "seed_each_point": False,
    "extremes": False, "keep_samples": False, "sampling": "full", "tolerance": 0.01, "relative_tolerance": False,
    "budget": None, "limits": None, "margin": None, "overwrite": False, "save_directions": False, "progress": True,
    "plan": None, "sample_memory": "auto", "compile": "auto", "normalization": "filter",
    "perturb_one_dimensional": False, "centering": "none", "directions": "random", "which": ("top", "second"),
    "rise": 1.0, "name": None, "also": None, "plane_of": "all", "dry_run": False,
}  # fmt: skip


def explanations_of(kind: type[Any]) -> dict[str, str]:
    """Returns what the docstring of a kind of options says of each of them."""
    found = re.findall(r"^    (\w+): (.+?)(?=^    \w|\Z)", inspect.getdoc(kind) or "", re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


EXPLANATIONS = {**explanations_of(SurveyOptions), **explanations_of(RunOptions)}


def with_defaults(
    function: str, kind: type[Any], options: Mapping[str, Any], defaults: Mapping[str, Any] = DEFAULTS
) -> Any:
    """Returns the options completed by defaults; a TypeError for one that the TypedDict ``kind`` lacks."""
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {**defaults, **options}


def pool_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those options that say where is measured, and how; ``open_pool`` takes them."""
    names = ("devices_per_worker", "workers_per_device", "address", "sample_memory", "compile")
    return {name: chosen[name] for name in names}


def parameters(kind: type[Any], defaults: Mapping[str, Any] = DEFAULTS) -> list[inspect.Parameter]:
    """Returns the options of the kind as a function's parameters."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in get_type_hints(kind).items()
    ]


def set_options(function: Callable[..., Any], options: list[inspect.Parameter], *, evaluated: bool = False) -> None:
    """Lets a function's signature show options in place of its ``**options``."""
    signature = inspect.signature(function, eval_str=evaluated)
    own = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]


def documented(
    kind: type[Any], defaults: Mapping[str, Any] = DEFAULTS, explanations: Mapping[str, str] = EXPLANATIONS
) -> Callable[[_Door], _Door]:
    """Lets ``help`` show the options of the kind, which the function takes as ``**options``."""

    def explain(line: re.Match[str]) -> str:
        texts = (f"{name}: {explanations.get(name)}" for name in kind.__annotations__)
        deeper = f"{line[1]}    "
        return "\n".join(textwrap.fill(text, 120, initial_indent=line[1], subsequent_indent=deeper) for text in texts)

    def complete(function: _Door) -> _Door:
        set_options(function, parameters(kind, defaults))
        function.__doc__ = re.sub(r"^( *)\*\*options: .*$", explain, function.__doc__ or "", flags=re.MULTILINE)
        return function

    return complete
