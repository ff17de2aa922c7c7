"""One table of the options of ``evaluate``, ``SummaryLandscape`` and their like, in Python and as they are typed."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_type_hints

from collectors.validation import check_bool, check_device_ids
from workers.curvature.products import MATRICES
from workers.measurement_options import BUFFER_POLICIES, SAMPLE_CHOICES, check_groups, check_num_samples
from workers.measurement_plan import PRECISIONS, check_compile

from ..planes.axis_curvature import USUAL, WHICH, check_rise, check_which
from ..planes.directions import NORMALIZATIONS
from ..planes.extent import check_limits, check_margin
from ..planes.further_runs import check_also
from .option import (
    Option,
    at_least,
    check_above_zero,
    check_address,
    check_between_0_and_1,
    check_plan,
    check_sample_memory,
    check_share,
    check_share_of_grid,
    check_stem,
    limited,
    optional,
)
from .option_kinds import (
    ChangeOptions,
    CheckOptions,
    CompareOptions,
    CurvatureOptions,
    EigenvectorOptions,
    MeasureOptions,
    ReportOptions,
    RunCurvatureOptions,
)
from .run import duration_seconds

Door = TypeVar("Door", bound=Callable[..., Any])

OPTIONS: Mapping[str, Option] = {
    "num_samples": Option(None, check_num_samples, "samples that a value is averaged over; None means all of the data "
        "set. Where callback_fn returns several data sets by name, one number for each of them, or a mapping by name.",
        help="How many samples the loss is averaged over: 1000, or by data set: train=1000,test=500.",
        flags=("--samples",), panel="Samples"),
    "device_ids": Option(None, check_device_ids, "GPU ids or, without GPUs, slots that share the CPU cores; None means "
        "all.", help="Device ids such as 0,1; all when absent.", flags=("--devices",), panel="Workers"),
    "devices_per_worker": Option(1, at_least(1), "how many GPUs each worker sees, the first of which is its "
        "``cuda:0``; without GPUs, how many slots' cores it joins. A network that callback_fn spreads over them stays "
        "where it is.", panel="Workers"),
    "workers_per_device": Option(1, at_least(1), "how many workers share each GPU and its memory; without GPUs, a "
        "slot's cores. This or ``devices_per_worker`` must be 1.", panel="Workers"),
    "address": Option(None, check_address, 'address of a Ray cluster to join; "local" starts a private Ray.',
        panel="Workers"),
    "seed": Option(0, at_least(0), "seed of adaptive sampling, of a random choice of samples and of the random "
        "directions that are drawn. A plane that is given has been drawn with a seed of its own.", panel="Samples"),
    "samples": Option("first", SAMPLE_CHOICES, 'which samples: "first" (in data-set order) or "random" (a seeded '
        "subset).", flags=("--sample-choice",), panel="Samples"),
    "buffers": Option("auto", ("auto", *BUFFER_POLICIES), '"fixed" (those of the origin), "recalibrate" (normalization '
        'statistics are computed at each point), "interpolate" (between the networks that a line or a plane goes '
        'through) or "auto". "auto" is "interpolate" for ``line_between`` and ``plane_through`` of networks whose '
        'floating-point buffers differ, so that the surface meets each network\'s own loss, and "fixed" for every '
        "other plane.", panel="Samples"),
    "recalibration_batch_size": Option(256, at_least(2), "samples per batch while these statistics are computed.",
        panel="Samples"),
    "precision": Option("float32", PRECISIONS, 'precision of the forward passes: "float32" (full), "tf32" (on NVIDIA '
        'GPUs since Ampere) or "bfloat16". "tf32" (PyTorch) rounds what matrix products and convolutions of '
        'float32 multiply; "bfloat16" (PyTorch, Keras) runs the network under autocast, with weights in float32, and '
        "computes loss and metrics in float32 from its outputs. Such a surface is rounded, is another experiment than "
        "one in float32, and says so.", panel="Samples"),
    "groups": Option(None, check_groups, "groups of samples whose losses are measured each, beside the loss of all: "
        '"target" (the classes), or a function of (inputs, targets) of a batch that returns a whole number for each '
        "sample. The losses are called ``loss[3]``, and ``loss[3]@test`` of another data set.", words=("target",),
        help="Measure the loss of each class too: target.", panel="Samples"),
    "seed_each_point": Option(False, check_bool, "whether a loss that draws random numbers (a VAE, diffusion, dropout "
        "that stays on) draws the same ones at every point (PyTorch). PyTorch's, NumPy's and Python's generators are "
        "seeded for each batch, by ``seed`` and the batch's place, and put back afterwards; so the data set's own "
        "batches are kept, nothing is compiled, and the file says so.", panel="Samples"),
    "extremes": Option(False, check_bool, "whether the largest and the lowest eigenvalue of the Hessian are measured "
        "at every point, as ``max_eigenvalue``, ``min_eigenvalue`` and ``convexity_ratio``, their |min / "
        "max|. A point then costs a hundred times its loss or more; the forecast says how long all takes. Needs "
        'sampling="full".', panel="Samples"),
    "keep_samples": Option(False, check_bool, "whether the loss of each sample is kept at every measured point, beside "
        "the mean: ``landscape.samples()`` reads them. The loss must have a value for each sample; all of them may "
        "take 2 GiB before they are compressed.", panel="Samples"),
    "sampling": Option("full", ("full", "adaptive"), '"full" (every grid point is measured) or "adaptive" (some are '
        "measured, the others interpolated, marked as such, until the estimated error of the loss is within the "
        "tolerance).", panel="Grid"),
    "tolerance": Option(0.01, check_share, "largest estimated error of the loss in adaptive sampling, as a share "
        "of the range of all losses.", panel="Grid"),
    "relative_tolerance": Option(False, check_bool, "whether the tolerance is a share of the loss at each point "
        "instead, for logarithmic pictures.", panel="Grid"),
    "budget": Option(None, optional(duration_seconds), 'how long the call may take: seconds, or text such as "30min". '
        "What is not measured by then is interpolated where enough is measured around it and pending elsewhere; the "
        "same call with the same ``output`` continues.", panel="Workers"),
    "limits": Option(None, check_limits, "where the grid begins and ends: the lowest and the highest coordinate of "
        "both axes, or x0, x1, y0, y1. The plane's own axes are left out then.", help="Where the grid ends, in "
        "lengths of the directions: lowest,highest of both axes, or x0,x1,y0,y1.", panel="Grid"),
    "margin": Option(None, check_margin, "how far the grid reaches beyond the path on each side, as a share of the "
        "path's range (0.2 by default). On planes without a path, as random ones are, it is a share of [-1, 1], and "
        "none by default.", typed=float | None, panel="Grid"),
    "share": Option(None, check_share_of_grid, 'which share of the points is measured, where several jobs measure one '
        'landscape in a file each: "2/4" is every fourth point from the second on; "array" takes number and count from '
        'the variables of a SLURM job array. ``landscape.functions.merge`` joins the files. Needs sampling="full".',
        help="Which share of the points is measured, such as 2/4; array: SLURM's job array says it.",
        panel="Grid"),
    "overwrite": Option(False, check_bool, "whether a landscape file of another identity is replaced.", panel="Output"),
    "save_directions": Option(False, check_bool, "whether the plane (origin, directions, who is on it) is kept beside "
        "the landscape file, in ``<stem>_directions.safetensors``, which ``Plane.load`` reads.",
        help="Keep the plane (origin, directions, who is on it) beside the landscape file.", panel="Output"),
    "progress": Option(True, check_bool, "whether a progress bar and, before it, a forecast are shown.",
        help="Show no bar, no forecast and no way to look at the result; warnings and results come anyway.",
        flags=("--progress/--quiet",), panel="Output"),
    "plan": Option(None, check_plan, "landscape file whose measurement plan is used again (batch size, threads, memory "
        "layout, compiling). A ``MeasurementPlan`` does too. With None, a file that is continued keeps its plan, and "
        "for a new one a plan is chosen by timing; then the last digits of a loss may differ from run to run.",
        metavar="FILE", panel="Workers"),
    "sample_memory": Option("auto", check_sample_memory, 'how much memory of a machine the samples may take: "auto" '
        '(half of what is free), bytes, or text such as "8GB" or "25%" (of what is free). What takes more is read anew '
        "in each pass over the data set, in which many points are measured (PyTorch only).", typed=str,
        panel="Workers"),
    "compile": Option("auto", check_compile, 'whether a PyTorch network is compiled: True, False or "auto" (where a '
        "package of it is there, or measuring takes long). Where compiled code gives other values, the network runs "
        "eagerly, and a note says so.", help="torch.compile; when absent, where it pays off.", typed=bool | None,
        panel="Workers"),
    "normalization": Option("filter", NORMALIZATIONS, "scale of the random directions: "
        '"filter", "layer", "weight" or "none".', panel="Directions"),
    "perturb_one_dimensional": Option(False, check_bool, "whether the random directions also move biases and the "
        "parameters of normalization layers, which stay where they are otherwise.", panel="Directions"),
    "centering": Option("none", ("none", "mean"), 'centre of the principal directions: "none" (anchored at the last '
        'checkpoint) or "mean".', panel="Directions"),
    "directions": Option("random", ("random", "hessian", "ggn", "pca"), "directions of the result's landscape: "
        '"random", "hessian" (along eigenvectors of the loss\'s Hessian, the directions in which it bends most), "ggn" '
        '(those of the generalised Gauss-Newton matrix) or "pca" (the principal directions of the last interval, which '
        'is the landscape that "train" draws anyway). Eigenvectors are kept beside the '
        "landscape file, and an interrupted survey goes on with them.", help="Directions of the result's landscape.",
        panel="Directions"),
    "which": Option(USUAL, check_which, 'which one or two eigenvectors: "top", "second", "third", "fourth", '
        '"fifth", "bottom". At a saddle "top" and "bottom" show what random directions hide.',
        help=f"One or two eigenvectors, such as top,bottom; of {', '.join(WHICH)}.",
        metavar="NAMES", typed=str, panel="Directions"),
    "rise": Option(1.0, check_rise, "how much the loss rises along an eigenvector to the end of its axis, as far as it "
        "is a parabola, in units of the loss.", help="How much the loss rises along an eigenvector to the end of its "
        "axis, as a parabola.", panel="Directions"),
    "name": Option(None, optional(check_stem), 'beginning of the file names, instead of "landscape".',
        panel="Output"),
    "also": Option(None, check_also, "other runs and networks to draw on the planes of the intervals: a list of run "
        "directories, or a dict from names to them. A file of weights (.safetensors, .pt, ...) is a network, drawn as "
        "a mark. Runs without a name are called like their directories; with the path of the run itself, its name. Of "
        "another run all checkpoints are taken, or, if this one has several intervals, those between an interval's "
        "ends.", help="Another run to draw on the intervals' planes, or a file of weights; may be given several times.",
        metavar="[NAME=]RUN", typed=list[str] | None, panel="Directions"),
    "plane_of": Option("all", ("all", "first"), 'runs whose checkpoints span these planes: "all" (this run\'s and '
        'those of also together) or "first" (this run\'s alone). "all" keeps most of every path; a path that is only '
        "projected onto another run's plane shows little of itself. With \"first\" the plane is the run's own, so that "
        "its landscape file is continued and nothing in it is measured again.", panel="Directions"),
    "dry_run": Option(False, check_bool, "whether only the forecast is printed: what would be measured, and how long "
        "that would take.", flags=("--dry-run",), panel="Output"),
}  # fmt: skip


_OF_CHANGE: Mapping[str, Option] = {
    name: OPTIONS[name].or_none(
        typed, f"{text}; as before when absent.", text=f"{OPTIONS[name].text.removesuffix('.')}; None means as before."
    )
    for name, text, typed in (
        ("sampling", "Which points are measured", str | None),
        ("tolerance", "Of adaptive sampling", float | None),
        ("relative_tolerance", "The tolerance is a share of the loss at each point", bool | None),
    )
}
_OF_CURVATURE: Mapping[str, Option] = {
    "top": Option(5, at_least(0), "how many of the largest eigenvalues."),
    "bottom": Option(0, at_least(0), "how many of the lowest eigenvalues. These cost most: at the end of a training "
        "they are small beside the largest ones."),
    "matrix": Option("hessian", MATRICES, 'whose eigenvalues: "hessian" or "ggn". "ggn" is the generalised '
        "Gauss-Newton matrix, which is never negative for a loss that is convex in the network's outputs."),
    "trace_probes": Option(10, at_least(0), "products for the trace (the sum of all eigenvalues) and its 95 % "
        "interval, beside the eigenvalues; 0 measures none.", flags=("--trace",)),
    "density_probes": Option(0, at_least(0), "random probes for the density of all eigenvalues; 0 measures none."),
    "density_steps": Option(40, at_least(1), "products for each of these probes."),
    "max_products": Option(200, at_least(1), "products for one search for eigenvalues. What has not converged by then "
        "is marked, and its residual says how well it is known."),
    "keep_vectors": Option(False, check_bool, "whether eigenvectors are kept, with the weights, in a file for each set "
        "of weights. They lie beside the curvature file in ``<stem>_vectors_<number>.safetensors``, and "
        "``Curvature.vectors`` and ``Curvature.plane`` read them.", flags=("--keep-vectors",)),
    "seed": replace(OPTIONS["seed"], text="seed of all random starts, and of a random choice of samples."),
    "tolerance": Option(1e-3, check_between_0_and_1, "largest residual of an eigenvalue, as a share of its own "
        "size, or of a thousandth of the largest eigenvalue's if that is more."),
    "seed_each_point": replace(OPTIONS["seed_each_point"], text="whether a loss that draws random numbers draws the "
        "same ones in every product (PyTorch)."),
    "budget": replace(OPTIONS["budget"], text='how long the call may take: seconds, or text such as "30min". Weights '
        "that are not begun by then are pending; the same call continues."),
    "overwrite": replace(OPTIONS["overwrite"], text="whether a curvature file of another identity is replaced.",
        flags=("--overwrite",)),
    "name": replace(OPTIONS["name"], text='beginning of the file names, instead of "curvature".'),
}  # fmt: skip
_OF_COMPARISON: Mapping[str, Option] = {
    "directions": Option(12, limited(at_least(1), lambda count: count not in (2, 3), "1, of which the interval leaves "
        "directions out, or at least 4, because intervals from 2 or 3 hold the truth less often than they say"),
        "random directions through each network."),
    "points": Option(9, limited(at_least(3), lambda count: count % 2 == 1, "an odd number, so that the network itself "
        "is in the middle"), "points along each of them, odd; the network itself is in the middle."),
    "radius": Option(0.5, check_above_zero, "how far a line goes each way, in lengths of its direction."),
    "normalization": replace(OPTIONS["normalization"], text='scale of the directions: "filter", "layer", "weight" or '
        '"none".'),
    "confidence": Option(0.95, check_between_0_and_1, "confidence of the intervals."),
    "rise": Option(0.1, check_rise, 'the rise to which "radius_of_rise" says how far it is, in units of the loss.'),
    "trace_lines": Option(0, at_least(0), "random lines for the trace of each network's Hessian, from losses alone in "
        "any framework; 0 measures none."),
    "seed": replace(OPTIONS["seed"], text="of the directions, of a random choice of samples, and of the bootstrap."),
    "buffers": Option("fixed", ("fixed", "recalibrate"), '"fixed" (each network\'s own) or "recalibrate" '
        "(normalization statistics are computed at each point)."),
    "budget": replace(OPTIONS["budget"], text='how long the call may take: seconds, or text such as "30min". Lines '
        "that are not measured by then are pending; the same call continues."),
    "overwrite": replace(OPTIONS["overwrite"], text="whether a comparison file of another identity is replaced.",
        flags=("--overwrite",)),
}  # fmt: skip
_OF_MEASURE: Mapping[str, Option] = {
    "seed": replace(OPTIONS["seed"], text="seed of whatever is drawn: a random choice of samples, the points of "
        "adaptive sampling, directions, starts, batches. A plane that is given has been drawn with a seed of its own."),
    "budget": replace(OPTIONS["budget"], text='how long a call may take: seconds, or text such as "30min". What is not '
        "measured by then is pending, or interpolated where enough of a grid is measured around it; the same call with "
        "the same ``output`` continues."),
    "overwrite": replace(OPTIONS["overwrite"], text="whether a file of another identity is replaced."),
}  # fmt: skip
_OF_RUN: Mapping[str, Option] = {
    "num_samples": replace(OPTIONS["num_samples"], text="samples that a value is averaged over; None means as many as "
        "were collected for landscapes. Where callback_fn returns several data sets by name, one number for each of "
        "them, or a mapping by name, in which None means all.",
        help=f"{OPTIONS['num_samples'].help} When absent, as many as the training asked for."),
}  # fmt: skip
_OF_CHECK: Mapping[str, Option] = {
    **_OF_RUN,
    "device_ids": replace(OPTIONS["device_ids"], text="GPU ids or, without GPUs, slots that share the CPU cores, of "
        "which the first one measures; None means the first of all.",
        help="Device id such as 0; the first of all when absent."),
}  # fmt: skip
_OF_REPORT: Mapping[str, Option] = {
    **_OF_RUN, "name": replace(OPTIONS["name"], text='beginning of the file names, instead of "report".'),
}  # fmt: skip
# What is something else where not a grid is measured.
_OF_KIND: Mapping[type[Any], Mapping[str, Option]] = {
    MeasureOptions: _OF_MEASURE,
    ChangeOptions: _OF_CHANGE,
    CurvatureOptions: _OF_CURVATURE,
    RunCurvatureOptions: {**_OF_MEASURE, **_OF_CURVATURE, **_OF_RUN},
    ReportOptions: _OF_REPORT,
    CheckOptions: _OF_CHECK,
    EigenvectorOptions: _OF_CURVATURE,
    CompareOptions: _OF_COMPARISON,
}


def table_of(kind: type[Any]) -> Mapping[str, Option]:
    """Returns all options, each as calls of the kind have it."""
    return {**OPTIONS, **_OF_KIND.get(kind, {})}


def options_of(kind: type[Any]) -> dict[str, Option]:
    """Returns the options of a kind, those that no other kind has first."""
    table = {**_OF_KIND.get(kind, {}), **table_of(kind)}
    return {name: option for name, option in table.items() if name in kind.__annotations__}


def with_defaults(function: str, kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Returns all options of the kind, checked; a TypeError for one that it lacks, as Python has for ``function``."""
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return checked(kind, options)


def checked(kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Returns all options of the kind, each checked or, where it is left out, its default."""
    return {
        name: option.checked(name, options[name]) if name in options else option.default
        for name, option in options_of(kind).items()
    }


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options that ``Measure`` takes, and those that are left for its method."""
    shared = {name: value for name, value in options.items() if name in MeasureOptions.__annotations__}
    return shared, {name: value for name, value in options.items() if name not in shared}


def documented(*kinds: type[Any]) -> Callable[[Door], Door]:
    """Puts the options of the kinds into signature and text of what takes them as ``**options``, so for ``help``."""
    options = {name: option for kind in kinds for name, option in options_of(kind).items()}
    types = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=types[name])
        for name, option in options.items()
    ]

    def explain(line: re.Match[str]) -> str:
        texts = (f"{name}: {option.text}" for name, option in options.items())
        deeper = f"{line[1]}    "
        return "\n".join(textwrap.fill(text, 120, initial_indent=line[1], subsequent_indent=deeper) for text in texts)

    def show(door: Door) -> Door:
        signature = inspect.signature(door)
        first = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
        door.__signature__ = signature.replace(parameters=[*first, *shown])  # type: ignore[attr-defined]
        door.__doc__ = re.sub(r"^( *)\*\*options: .*$", explain, door.__doc__ or "", flags=re.MULTILINE)
        return door

    return show
