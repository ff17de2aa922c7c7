"""How a loss is computed: chosen once, stored in the file, the same for every worker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collectors.validation import check_bool, check_int, check_keys, wrong_type, wrong_value


@dataclass(frozen=True)
class MeasurementPlan:
    """How the forward passes are run; two workers with one plan give the same bits on equal hardware.

    Attributes:
        batch_size: samples per forward pass; None keeps the data loader's own batches.
        threads: CPU threads per worker.
        channels_last: whether image batches are laid out channels-last.
        compile: whether the network runs through ``torch.compile``; where that fails or gives other values it runs
            eagerly and says so. Weights are never frozen into the compiled code.
        reason: why it is compiled or not, in a sentence, where tuning chose.
    """

    batch_size: int | None = None
    threads: int = 1
    channels_last: bool = False
    compile: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            check_int("batch_size", self.batch_size, minimum=1)
        check_int("threads", self.threads, minimum=1)
        check_bool("channels_last", self.channels_last)
        check_bool("compile", self.compile)
        if not isinstance(self.reason, str):
            raise wrong_type("reason", "a str", self.reason)

    def to_json(self) -> dict[str, Any]:
        """Returns a dictionary that ``json`` can write."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MeasurementPlan:
        """Returns the plan that ``to_json`` described."""
        return cls(
            **check_keys("measurement_plan", value, ("batch_size", "threads", "channels_last", "compile", "reason"))
        )


@dataclass(frozen=True)
class Workload:
    """What tuning may do, and for how much work.

    Attributes:
        compile: whether the network is compiled: True, False or "auto" (where the forecast says that it pays back).
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
