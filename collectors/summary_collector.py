"""SummaryCollector: collects, while a network trains, what its loss landscape is drawn from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Any

from .callback import BuiltInCallback, RunContext
from .run_writer import EXISTING
from .settings import LandscapeSettings
from .trajectory_recorder import TrajectoryRecorder
from .validation import (
    check_bool,
    check_choice,
    check_int,
    check_keys,
    check_path,
    wrong_type,
    wrong_value,
)

_SWITCHES = (
    "collect_metric",
    "collect_graph",
    "collect_train_lineage",
    "collect_eval_lineage",
    "collect_input_data",
    "collect_dataset_graph",
)
_SPECIFIED = (*_SWITCHES, "histogram_regular", "collect_landscape")


class SummaryCollector(BuiltInCallback):
    """Saves checkpoints at chosen steps or epochs into a run directory, from which landscapes are drawn later.

    Use it as a callback of ``collectors.Model``, or in any PyTorch loop through ``watch``.

    Args:
        summary_dir: the run directory; it is created when training begins.
        collect_freq: every how many steps summary records are collected.
        collect_specified_data: what to collect; ``{"collect_landscape": {...}}`` asks for checkpoints with the keys
            ``intervals`` (list of lists or ranges of numbers), ``unit`` ("step" or "epoch"), ``landscape_size``
            (3 to 256), ``num_samples`` and ``create_landscape`` ({"train": bool, "result": bool}).
        keep_default_action: whether items that ``collect_specified_data`` leaves out keep their defaults.
        custom_lineage_data: your own facts about the run, str to int, float or str.
        collect_tensor_freq: every how many steps tensors are collected; None chooses.
        max_file_size: the largest size of a summary file in bytes; None sets no limit.
        export_options: {"tensor_format": "npy"} or None.
        collect_landscape: shorthand for the entry in ``collect_specified_data``.
        existing: what to do when the directory already holds a run: "error", "resume" (equal network and
            settings; checkpoints numbered after the restart point are dropped) or "overwrite".

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.

    Note:
        Of the summary system only ``collect_landscape`` does its work in this version; the other arguments are
        checked and kept for the records to come.
    """

    def __init__(
        self,
        summary_dir: str | PathLike[str],
        collect_freq: int = 10,
        collect_specified_data: Mapping[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: Mapping[str, int | float | str] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: Mapping[str, str | None] | None = None,
        *,
        collect_landscape: Mapping[str, Any] | None = None,
        existing: str = "error",
    ) -> None:
        super().__init__()
        self._summary_dir = check_path("summary_dir", summary_dir)
        for path in (self._summary_dir, *self._summary_dir.parents):
            if path.exists():
                if not path.is_dir():
                    raise NotADirectoryError(
                        f"summary_dir must be a directory, but {path} is a file; choose another path."
                    )
                break
        self._collect_freq = check_int("collect_freq", collect_freq, minimum=1)
        specified = _check_specified(collect_specified_data)
        self._keep_default_action = check_bool("keep_default_action", keep_default_action)
        self._custom_lineage_data = _check_lineage(custom_lineage_data)
        self._collect_tensor_freq = _optional_positive("collect_tensor_freq", collect_tensor_freq)
        self._max_file_size = _optional_positive("max_file_size", max_file_size)
        self._export_options = _check_export_options(export_options)
        if collect_landscape is not None and specified.get("collect_landscape") is not None:
            raise ValueError(
                "collect_landscape is given twice, as an argument and inside collect_specified_data; give it once."
            )
        landscape = collect_landscape if collect_landscape is not None else specified.get("collect_landscape")
        self._landscape = None if landscape is None else LandscapeSettings.from_dict(landscape)
        self._existing = check_choice("existing", existing, EXISTING)
        self._recorder: TrajectoryRecorder | None = None

    @property
    def summary_dir(self) -> str:
        """The run directory."""
        return str(self._summary_dir)

    def watch(
        self,
        network: object,
        *,
        steps_per_epoch: int | None = None,
        start_epoch: int = 0,
        start_step: int = 0,
    ) -> WatchedTraining:
        """Returns a context for a hand-written training loop.

        Example::

            with collector.watch(network) as run:
                for epoch in range(20):
                    for inputs, targets in loader:
                        ...
                        optimizer.step()
                        run.step(loss)
                    run.end_epoch()

        Args:
            network: the network that trains.
            steps_per_epoch: where it is known; otherwise learnt at the first epoch's end.
            start_epoch: epochs already done, after a resume.
            start_step: steps already done, after a resume.

        Raises:
            TypeError: an argument has the wrong type; for the network, on entering.
            ValueError: an argument has a wrong value.
            RunDirectoryError: on entering, when the directory already holds a run that may not be touched.
            CheckpointWriteError: from ``step``, ``end_epoch`` or on leaving, when a checkpoint could not be written.
        """
        if steps_per_epoch is not None:
            check_int("steps_per_epoch", steps_per_epoch, minimum=1)
        check_int("start_epoch", start_epoch, minimum=0)
        check_int("start_step", start_step, minimum=0)
        if start_epoch and not start_step and self._landscape is not None and self._landscape.unit == "step":
            # A resume from step 0 would drop all checkpoints of the earlier part.
            raise ValueError(
                f"start_step must be given with start_epoch={start_epoch}, because checkpoints are numbered by steps; "
                "it is the number of steps already done."
            )
        return WatchedTraining(self, network, steps_per_epoch, start_epoch, start_step)

    def on_train_begin(self, run_context: RunContext) -> None:
        """Opens the run directory and saves the state before the first step where that is asked for."""
        parameters = run_context.original_args()
        self._check_alone(parameters.get("list_callback"))
        # A data set without a length has no batch_num until its first epoch has ended.
        self._begin(
            parameters["network"],
            parameters.get("batch_num"),
            int(parameters.get("cur_epoch_num", 0)),
            int(parameters.get("cur_step_num", 0)),
        )

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Saves a checkpoint where the step's number asks for it."""
        if self._recorder is not None:
            self._recorder.step()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Saves a checkpoint where the epoch's number asks for it."""
        if self._recorder is not None:
            self._recorder.end_epoch()

    def on_train_end(self, run_context: RunContext) -> None:
        """Waits until everything is on disk."""
        self._finish(None)

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        """Leaves a directory behind that can be analysed as far as training came."""
        self._finish(error)

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._finish(error)

    def _begin(self, network: object, steps_per_epoch: int | None, start_epoch: int, start_step: int) -> None:
        if self._recorder is not None:
            raise RuntimeError("this SummaryCollector already watches a training; make another one for another run.")
        if self._landscape is not None:
            self._recorder = TrajectoryRecorder(
                self._summary_dir,
                self._landscape,
                self._existing,
                network,
                step_per_epoch=steps_per_epoch,
                start_epoch=start_epoch,
                start_step=start_step,
            )

    def _finish(self, error: BaseException | None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish(error)

    def _check_alone(self, callbacks: object) -> None:
        if isinstance(callbacks, list | tuple) and sum(isinstance(item, SummaryCollector) for item in callbacks) > 1:
            raise ValueError("callbacks must hold at most one SummaryCollector; remove the others.")


class WatchedTraining:
    """A hand-written training loop under watch; made by ``SummaryCollector.watch``."""

    def __init__(
        self,
        collector: SummaryCollector,
        network: object,
        steps_per_epoch: int | None,
        start_epoch: int,
        start_step: int,
    ) -> None:
        self._collector = collector
        self._arguments = (network, steps_per_epoch, start_epoch, start_step)
        self._entered = False

    def step(self, loss: object = None) -> None:
        """Call it after every optimizer step.

        Args:
            loss: the step's loss; kept for the summary records to come, landscapes do not need it.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        if self._collector._recorder is not None:
            self._collector._recorder.step()

    def end_epoch(self) -> None:
        """Call it after every epoch.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        if self._collector._recorder is not None:
            self._collector._recorder.end_epoch()

    def __enter__(self) -> WatchedTraining:
        self._collector._begin(*self._arguments)
        self._entered = True
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        self._collector._finish(error)

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError(
                "a watched training must be inside its context, or nothing is saved; write "
                "`with collector.watch(network) as run:` around the loop."
            )


def _check_specified(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    given = check_keys("collect_specified_data", value, _SPECIFIED)
    for key in _SWITCHES:
        if key in given:
            check_bool(f"collect_specified_data[{key!r}]", given[key])
    pattern = given.get("histogram_regular")
    if pattern is not None:
        name = "collect_specified_data['histogram_regular']"
        if not isinstance(pattern, str):
            raise wrong_type(name, "a regular expression (str) or None", pattern)
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong_value(name, f"a valid regular expression ({error})", pattern) from error
    return given


def _check_lineage(value: object) -> dict[str, int | float | str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_type("custom_lineage_data", "a dict or None", value)
    for key, item in value.items():
        if not isinstance(key, str):
            raise wrong_type("a key of custom_lineage_data", "a str", key)
        if isinstance(item, bool) or not isinstance(item, int | float | str):
            raise wrong_type(f"custom_lineage_data[{key!r}]", "an int, a float or a str", item)
    return dict(value)


def _optional_positive(name: str, value: object) -> int | None:
    return None if value is None else check_int(name, value, minimum=1)


def _check_export_options(value: object) -> dict[str, str | None]:
    if value is None:
        return {}
    given = check_keys("export_options", value, ("tensor_format",))
    if given.get("tensor_format") is not None:
        check_choice("export_options['tensor_format']", given["tensor_format"], ("npy",))
    return given
