"""Saves a network at the asked steps or epochs; every collector, whatever its trainer, is a shell around this."""

from __future__ import annotations

from .network_state import describe_network, repeated_reader
from .process_rank import is_first_rank
from .run_files import AnyPath
from .run_writer import RunWriter
from .settings import LandscapeSettings


class TrajectoryRecorder:
    """Counts steps and epochs, and saves a checkpoint whenever the count is in an interval.

    Args:
        summary_dir: the run directory, on this machine or behind a URL.
        settings: what to collect.
        existing: what to do with a run that is already there: "error", "resume" or "overwrite".
        network: the network that trains; only rank 0 of a distributed training saves it.
        step_per_epoch: where it is known; otherwise it is learnt at the end of the first whole epoch.
        start_epoch: epochs already done (after a resume).
        start_step: steps already done (after a resume).

    Raises:
        RunDirectoryError: the directory already holds a run that may not be touched.
        OSError: the directory cannot be written.
    """

    def __init__(
        self,
        summary_dir: AnyPath,
        settings: LandscapeSettings,
        existing: str,
        network: object,
        *,
        step_per_epoch: int | None = None,
        start_epoch: int = 0,
        start_step: int = 0,
    ) -> None:
        self._settings = settings
        self._numbers = settings.numbers
        self._epoch, self._step = start_epoch, start_step
        self._steps_in_epoch = 0
        self._learns_steps = step_per_epoch is None
        # After a resume in the middle of an epoch, the first epoch's end would teach a wrong number of steps.
        self._epoch_is_whole = start_step == 0
        self._writer: RunWriter | None = None
        if is_first_rank():
            self._read = repeated_reader(network)
            self._writer = RunWriter(
                summary_dir,
                settings,
                describe_network(network),
                existing=existing,
                start=self._number,
                step_per_epoch=step_per_epoch,
            )
            # After a resume inside an epoch, these are not the weights with which the last epoch ended.
            inside = settings.unit == "epoch" and step_per_epoch and start_step != start_epoch * step_per_epoch
            if not inside:
                self._save_if_asked()

    @property
    def _number(self) -> int:
        return self._step if self._settings.unit == "step" else self._epoch

    def step(self) -> None:
        """Notes that one optimizer step is done."""
        self._step += 1
        self._steps_in_epoch += 1
        if self._writer is not None:
            self._writer.check()
            if self._settings.unit == "step":
                self._save_if_asked()

    def end_epoch(self) -> None:
        """Notes that one epoch is done."""
        self._epoch += 1
        if self._writer is not None:
            if self._learns_steps and self._epoch_is_whole and self._steps_in_epoch:
                self._writer.set_step_per_epoch(self._steps_in_epoch)
                self._learns_steps = False
            self._writer.check()
            if self._settings.unit == "epoch":
                self._save_if_asked()
        self._steps_in_epoch, self._epoch_is_whole = 0, True

    def finish(self, error: BaseException | None = None) -> None:
        """Waits until everything is on disk.

        Args:
            error: what ended the training, if it did not end well; a failed write is then added to it as a note
                instead of hiding it.

        Raises:
            CheckpointWriteError: a checkpoint could not be written.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.finish(self._number, error)

    def _save_if_asked(self) -> None:
        number = self._number
        if self._writer is not None and number in self._numbers:
            self._writer.save(number, self._read())
