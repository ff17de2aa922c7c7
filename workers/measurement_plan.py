"""How a loss is computed: chosen once, stored in the file, the same for every worker."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from collectors.validation import check_bool, check_instance, check_int, check_keys, wrong_type, wrong_value

# A plan says how many threads start; a file that holds one must not drown a machine in them.
_MOST_THREADS = 4096


def _check_batch_size(name: str, value: object) -> None:
    if value is not None:
        check_int(name, value, minimum=1)


PLAN_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "batch_size": _check_batch_size,
    "threads": functools.partial(check_int, minimum=1, maximum=_MOST_THREADS),
    "channels_last": check_bool,
    "compile": check_bool,
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
        compile: whether the network runs through ``torch.compile``; where that fails or gives other values it runs
            eagerly and says so. Weights are never frozen into the compiled code.
        reason: why it is compiled or not, in a sentence, where tuning chose.
        details: the measured seconds behind the reason. They differ from run to run, so they are neither compared nor
            written to a file.
    """

    batch_size: int | None = None
    threads: int = 1
    channels_last: bool = False
    compile: bool = False
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


@dataclass(frozen=True)
class Workload:
    """What tuning may do, and for how much work.

    Attributes:
        compile: whether the network is compiled: True, False or "auto" (where the forecast says that it pays off).
        points: how many will be measured by one worker.
        seconds: the budget of measuring them.
        workers: how many start with the same plan.
    """

    compile: bool | str = False
    points: float = 0.0
    seconds: float = math.inf
    workers: int = 1


def check_compile(compile: object) -> bool | str:
    """Returns the choice of compilation.

    Raises:
        TypeError: it is neither bool nor str.
        ValueError: it is text other than "auto".
    """
    expected = 'True, False or "auto"'
    if not isinstance(compile, bool | str):
        raise wrong_type("compile", expected, compile)
    if isinstance(compile, str) and compile != "auto":
        raise wrong_value("compile", expected, compile)
    return compile
