"""WatchedTraining: a hand-written training loop under watch of a SummaryCollector."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collected_run import CollectedRun
    from .summary_collector import SummaryCollector


class WatchedTraining:
    """A hand-written training loop under watch; made by ``SummaryCollector.watch``."""

    def __init__(self, collector: SummaryCollector, parameters: dict[str, Any]) -> None:
        self._collector = collector
        self._start = parameters
        self._parameters: dict[str, Any] = {}
        self._run: CollectedRun | None = None
        self._entered = False
        self._step_has_begun = False

    def begin_step(self) -> None:
        """Call it before an optimizer step only where ``step`` comes after a scheduler has set the next learning rate.

        Raises:
            RuntimeError: the context was not entered, or is left.
        """
        self._check_entered()
        if self._run is not None:
            self._run.begin_step({**self._parameters, "cur_step_num": self._parameters["cur_step_num"] + 1})
            self._step_has_begun = True

    def step(self, loss: object = None) -> None:
        """Call it after every optimizer step, and before a scheduler sets the learning rate of the next.

        Args:
            loss: the step's loss, which is recorded where the step is; None records none.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        self._parameters["cur_step_num"] += 1
        # Without its history, which would keep the whole forward pass alive.
        self._parameters["net_outputs"] = loss.detach() if hasattr(loss, "detach") else loss
        if self._run is not None:
            if not self._step_has_begun:
                self._run.begin_step(self._parameters)
            self._step_has_begun = False
            self._run.end_step(self._parameters)

    def end_epoch(self) -> None:
        """Call it after every epoch.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        self._parameters["cur_epoch_num"] += 1
        if self._run is not None:
            self._run.end_epoch(self._parameters)

    def __enter__(self) -> WatchedTraining:
        parameters = {**self._start, **_devices()}
        self._run = self._collector._begin(parameters)
        self._parameters = parameters
        self._entered = True
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        run, self._run = self._run, None
        try:
            if run is not None and error is None:
                epochs = self._parameters["epoch_num"] or self._parameters["cur_epoch_num"] or None
                run.end_training({**self._parameters, "epoch_num": epochs})
        finally:
            self._collector._finish(error)

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError(
                "a watched training must be inside its context, or nothing is saved; write "
                "`with collector.watch(network) as run:` around the loop."
            )


def _devices() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return {"parallel_mode": "data_parallel", "device_number": distributed.get_world_size()}
    return {"parallel_mode": "stand_alone", "device_number": 1}
