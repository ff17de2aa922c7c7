"""How a loss is computed: chosen once, stored in the file, the same for every worker."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from collectors.validation import check_bool, check_choice, check_instance, check_int, check_keys, wrong_value

# A plan says how many threads start; a file that holds one must not drown a machine in them.
_MOST_THREADS = 4096


COMPILERS = ("", "AOTInductor", "torch.compile")
"""Who compiles: nobody or whoever can, PyTorch's compiler ahead of time, or the same at the first call."""

PRECISIONS = ("float32", "tf32", "bfloat16")
"""How the forward passes round: as the network was built, or on purpose to fewer digits."""


PLAN_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "batch_size": lambda name, value: value is None or check_int(name, value, minimum=1),
    "threads": functools.partial(check_int, minimum=1, maximum=_MOST_THREADS),
    "channels_last": check_bool,
    "compile": check_bool,
    "compiler": functools.partial(check_choice, choices=COMPILERS),
    "first_layer": check_bool,
    "precision": functools.partial(check_choice, choices=PRECISIONS),
    "gradients": check_bool,
    "reason": functools.partial(check_instance, types=str, expected="a str"),
}
"""The check of each entry of a ``MeasurementPlan``: a function of the entry's name, for an error's text, and value."""


@dataclass(frozen=True)
class MeasurementPlan:
    """How the forward passes are run; two workers with one plan give the same bits on equal hardware and versions.

    Attributes:
        batch_size: samples per forward pass; None keeps the data loader's own batches.
        threads: CPU threads per worker.
        channels_last: whether image batches are laid out channels-last.
        compile: whether the network is compiled; where that fails or gives other values it runs eagerly and says so.
            Weights are never frozen into the compiled code.
        compiler: what compiled it, because the last bits depend on it: "AOTInductor", whose packages are kept and
            loaded without the compiler, or "torch.compile" where that cannot be used; "" leaves the choice, or nothing
            was compiled.
        first_layer: whether the first layer's outputs are computed once for a plane and added up at each point, where
            that can be done; the last bits depend on it.
        precision: of the forward passes, as ``MeasurementOptions`` says, which a description's plan follows.
        gradients: whether everything is recorded for gradients, because the loss needs them (PyTorch). That is found
            out each time; a plan from elsewhere does not decide it.
        reason: why it is compiled or not, in a sentence, where tuning chose.
        details: the measured seconds behind the reason. They differ from run to run, so they are neither compared nor
            written to a file.
    """

    batch_size: int | None = None
    threads: int = 1
    channels_last: bool = False
    compile: bool = False
    compiler: str = ""
    first_layer: bool = False
    precision: str = "float32"
    gradients: bool = False
    reason: str = ""
    details: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, check in PLAN_CHECKS.items():
            check(name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Returns a dictionary that ``json`` can write: what the file of a landscape keeps."""
        return {name: value for name, value in asdict(self).items() if name in PLAN_CHECKS}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MeasurementPlan:
        """Returns the plan that ``to_json`` described."""
        return cls(**check_keys("measurement_plan", value, PLAN_CHECKS))


_ROUNDED = {"tf32": "TF32", "bfloat16": "bfloat16"}
_COMPILED, _NOT_COMPILED = "compiled: ", "not compiled: "


def plan_text(plan: Mapping[str, object] | None, details: str = "") -> str:
    """Returns in words, for people, how losses are computed under a plan (its ``to_json``); "" without a plan."""
    if not plan:
        return ""
    size, threads, compiler = (plan.get(name) for name in ("batch_size", "threads", "compiler"))
    reason = str(plan.get("reason") or "").removeprefix(_COMPILED).removeprefix(_NOT_COMPILED)
    why = "; ".join(text for text in (reason, details) if text)
    code = "compiled code" if plan.get("compile") else "not compiled"
    if plan.get("compile") and compiler not in ("", None, COMPILERS[1]):
        code += f" by {compiler}"  # otherwise it is the usual one
    parts = [
        "batches kept as they are" if size is None else f"batches of {size} sample{'' if size == 1 else 's'}",
        f"{threads} thread{'' if threads == 1 else 's'} per worker",
        *(["images with their channels last in memory"] if plan.get("channels_last") else []),
        *(["the first layer computed once for all points"] if plan.get("first_layer") else []),
        *([f"computed in {_ROUNDED[str(plan['precision'])]}"] if plan.get("precision") in _ROUNDED else []),
        f"{code} ({why})" if why else code,
    ]
    return ", ".join(parts)


@dataclass(frozen=True)
class Workload:
    """What tuning may do, and for how much work."""

    compile: bool | str = False  # whether it compiles; "auto": where a package is there, or measuring takes long
    points: float = 0.0  # how many will be measured by one worker
    seconds: float = math.inf  # the budget of measuring them
    workers: int = 1  # how many start with the same plan
    rehearsal: bool = False  # whether only the forecast is wanted: nothing is compiled


ONE_THREAD = (
    "points take three times as long as forecast: other programs have begun, for which several threads would wait. One "
    "thread measures from here on, and the file's measurement plan says so. That changes a loss in its last digits at "
    "most."
)
NOT_IN_A_REHEARSAL = "a dry run compiles nothing"  # why a network is not compiled where only the forecast is wanted


def check_compile(name: str, compile: Any) -> bool | str:
    expected = 'True, False or "auto"'
    choice: bool | str = check_instance(name, compile, (bool, str), expected)
    if isinstance(choice, str) and choice != "auto":
        raise wrong_value(name, expected, choice)
    return choice
