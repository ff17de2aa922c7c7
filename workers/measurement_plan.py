"""How a loss is computed: chosen once, stored in the file, the same for every worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collectors.validation import check_bool, check_int, check_keys


@dataclass(frozen=True)
class MeasurementPlan:
    """How the forward passes are run; two workers with one plan give the same bits on equal hardware.

    Attributes:
        batch_size: samples per forward pass; None keeps the data loader's own batches.
        threads: CPU threads per worker.
        channels_last: whether image batches are laid out channels-last.
        compile: whether the network runs through ``torch.compile``; without a C++ compiler it runs eagerly and
            says so. Weights are never frozen into the compiled code.
    """

    batch_size: int | None = None
    threads: int = 1
    channels_last: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            check_int("batch_size", self.batch_size, minimum=1)
        check_int("threads", self.threads, minimum=1)
        check_bool("channels_last", self.channels_last)
        check_bool("compile", self.compile)

    def to_json(self) -> dict[str, Any]:
        """Returns a dictionary that ``json`` can write."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MeasurementPlan:
        """Returns the plan that ``to_json`` described."""
        return cls(**check_keys("measurement_plan", value, ("batch_size", "threads", "channels_last", "compile")))
