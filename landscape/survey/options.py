"""The options of ``evaluate``, ``SummaryLandscape`` and ``landscape run``, with their defaults and explanations."""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping
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
        address: address of a Ray cluster to join.
        seed: seed of adaptive sampling, of a random choice of samples and, in a run's landscapes, of random directions.
            A plane that is given has been drawn with a seed of its own.
        samples: which samples: "first" (in data-set order) or "random" (a seeded subset).
        buffers: "fixed" (those of the origin), "recalibrate" (normalization statistics are computed at each point),
            "interpolate" (between the networks that a line or a plane goes through) or "auto". "auto" is "interpolate"
            for ``line_between`` and ``plane_through`` of networks whose floating-point buffers differ, so that the
            surface meets each network's own loss, and "fixed" for every other plane.
        recalibration_batch_size: samples per batch while these statistics are computed.
        sampling: "full" (every grid point is measured) or "adaptive" (some are measured, the others interpolated,
            marked as such, until the estimated error of the loss is within the tolerance).
        tolerance: largest estimated error of the loss in adaptive sampling, as a share of the range of all losses.
        relative_tolerance: whether the tolerance is a share of the loss at each point instead, for logarithmic
            pictures.
        budget: how long the call may take: seconds, or text such as "30min". What is not measured by then is
            interpolated where enough is measured around it and pending elsewhere; the same call with the same
            ``output`` continues.
        overwrite: whether a landscape file of another identity is replaced.
        save_directions: whether the directions' vectors are kept beside the landscape file, in
            ``<stem>_directions.safetensors``.
        progress: whether a progress bar and, before it, a forecast are shown.
        plan: landscape file whose measurement plan is used again (batch size, threads, memory layout, compiling). A
            ``MeasurementPlan`` does too. With None, a file that is continued keeps its plan, and for a new one a plan
            is chosen by timing; then the last digits of a loss may differ from run to run.
        sample_memory: how much memory of a machine the samples may take: "auto" (half of what is free), bytes, or text
            such as "8GB" or "25%" (of what is free). What takes more is read anew in each pass over the data set, in
            which many points are measured (PyTorch only).
        compile: whether a PyTorch network is compiled (``torch.compile``): True, False or "auto" (where the forecast
            says that it pays off). Where compiled code gives other values, the network runs eagerly, and a note says
            so.
    """

    devices_per_worker: int
    workers_per_device: int
    address: str | None
    seed: int
    samples: str
    buffers: str
    recalibration_batch_size: int
    sampling: str
    tolerance: float
    relative_tolerance: bool
    budget: float | str | None
    overwrite: bool
    save_directions: bool
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
        name: beginning of the file names, instead of "landscape".
        dry_run: whether only the forecast is printed: what would be measured, and how long that would take.
    """

    normalization: str
    perturb_one_dimensional: bool
    centering: str
    name: str | None
    dry_run: bool


DEFAULTS: RunOptions = {
    "devices_per_worker": 1, "workers_per_device": 1, "address": None, "seed": 0, "samples": "first",
    "buffers": "auto", "recalibration_batch_size": 256, "sampling": "full", "tolerance": 0.01,
    "relative_tolerance": False, "budget": None, "overwrite": False, "save_directions": False, "progress": True,
    "plan": None, "sample_memory": "auto", "compile": "auto", "normalization": "filter",
    "perturb_one_dimensional": False, "centering": "none", "name": None, "dry_run": False,
}  # fmt: skip

EXPLANATIONS = {
    name: " ".join(text.split())
    for kind in (SurveyOptions, RunOptions)
    for name, text in re.findall(
        r"^    (\w+): (.+?)(?=^    \w|\Z)", inspect.getdoc(kind) or "", re.MULTILINE | re.DOTALL
    )
}


def with_defaults(function: str, kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Returns options of the kind, completed by the defaults of those that were left out.

    Raises:
        TypeError: the function has no option of that name.
    """
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {**DEFAULTS, **options}


def parameters(kind: type[Any]) -> list[inspect.Parameter]:
    """Returns the options of the kind as a function's parameters."""
    defaults: dict[str, Any] = {**DEFAULTS}
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in get_type_hints(kind).items()
    ]


def set_options(function: Callable[..., Any], options: list[inspect.Parameter], *, evaluated: bool = False) -> None:
    """Lets a function's signature show options in place of its ``**options``."""
    signature = inspect.signature(function, eval_str=evaluated)
    own = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]


def documented(kind: type[Any]) -> Callable[[_Door], _Door]:
    """Lets ``help`` show the options of the kind, which the function takes as ``**options``."""

    def explain(line: re.Match[str]) -> str:
        texts = (f"{name}: {EXPLANATIONS.get(name)}" for name in kind.__annotations__)
        deeper = f"{line[1]}    "
        return "\n".join(textwrap.fill(text, 120, initial_indent=line[1], subsequent_indent=deeper) for text in texts)

    def complete(function: _Door) -> _Door:
        set_options(function, parameters(kind))
        function.__doc__ = re.sub(r"^( *)\*\*options: .*$", explain, function.__doc__ or "", flags=re.MULTILINE)
        return function

    return complete
