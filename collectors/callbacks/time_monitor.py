"""TimeMonitor: prints how long epochs and their steps take."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ..validation import check_bool, check_int
from .callback import BuiltInCallback, RunContext, in_evaluation, parameters_of


class TimeMonitor(BuiltInCallback):
    """Prints ``Train epoch time: X ms, per step time: Y ms`` to standard output after each epoch.

    Evaluations, those inside ``Model.fit`` included, print the same with ``Eval``; their time does not count as time
    of the training epoch around them. The time per step is the mean over the steps that ran, also when training stops
    early. When the network is on a GPU, an epoch's time runs until the GPU has done its work.

    Args:
        data_size: the number of steps to divide by where ``cb_params`` has neither ``cur_step_num`` nor
            ``batch_num``.
        data_time: whether to append `` (data time: Z ms)``, the mean time per step that is spent waiting for the
            next batch.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: ``data_size`` is not positive; at the end of an epoch, there is no number of steps.
    """

    called_in_fit_evaluation = True

    def __init__(self, data_size: int | None = None, data_time: bool = False) -> None:
        self._data_size = None if data_size is None else check_int("data_size", data_size, minimum=1)
        self._data_time = check_bool("data_time", data_time)
        self._forget()

    def begin(self, run_context: RunContext) -> None:
        """Forgets the previous run; an evaluation halts the time of the training epoch around it, if there is one."""
        if in_evaluation(run_context):
            self._timers[True] = _EpochTimer()
            self._timers[False].paused_at = _time_of_device(run_context)
        else:
            self._forget()

    def epoch_begin(self, run_context: RunContext) -> None:
        now, first_step = _time_of_device(run_context), parameters_of(run_context).get("cur_step_num")
        self._timers[in_evaluation(run_context)] = _EpochTimer(now, now, first_step)

    def step_begin(self, run_context: RunContext) -> None:
        timer = self._timers[in_evaluation(run_context)]
        if timer.waiting_since is not None:
            timer.waited += perf_counter() - timer.waiting_since
            timer.waiting_since = None

    def step_end(self, run_context: RunContext) -> None:
        self._timers[in_evaluation(run_context)].waiting_since = perf_counter()

    def epoch_end(self, run_context: RunContext) -> None:
        timer, now = self._timers[in_evaluation(run_context)], _time_of_device(run_context)
        milliseconds = 0.0 if timer.start is None else (now - timer.start) * 1000
        timer.start = None
        steps = self._executed_steps(timer, parameters_of(run_context))
        mode = "Eval" if in_evaluation(run_context) else "Train"
        text = f"{mode} epoch time: {milliseconds:5.3f} ms, per step time: {milliseconds / steps:5.3f} ms"
        if self._data_time:
            text += f" (data time: {timer.waited * 1000 / steps:5.3f} ms)"
        print(text, flush=True)

    def end(self, run_context: RunContext) -> None:
        """Ends the run, so that an evaluation afterwards is one of its own; after an evaluation, training goes on."""
        if in_evaluation(run_context):
            self._timers[False].resume(_time_of_device(run_context))
        else:
            self._timers[False] = _EpochTimer()

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        if in_evaluation(run_context):
            # The training around it may go on.
            self.end(run_context)
        else:
            self._forget()

    def _forget(self) -> None:
        # By whether it is an evaluation's.
        self._timers = {False: _EpochTimer(), True: _EpochTimer()}

    def _executed_steps(self, timer: _EpochTimer, params: dict[str, Any]) -> int:
        step = params.get("cur_step_num")
        # A trainer that went back to an earlier step within the epoch gives no usable difference.
        if step is not None and timer.first_step is not None and step > timer.first_step:
            return int(step - timer.first_step)
        steps = params.get("batch_num")
        if isinstance(steps, int) and steps > 0:
            return steps
        if self._data_size is None:
            raise ValueError(
                "data_size must be given, because the trainer tells neither the current step nor the number of "
                "batches. Pass TimeMonitor(data_size=<steps per epoch>)."
            )
        return self._data_size


def _time_of_device(run_context: RunContext) -> float:
    """Returns the time when the network's device has done its work: a GPU works asynchronously."""
    torch, network = sys.modules.get("torch"), parameters_of(run_context).get("network")
    if torch is not None and isinstance(network, torch.nn.Module):
        for device in {parameter.device for parameter in network.parameters()}:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            elif device.type == "mps":
                torch.mps.synchronize()
    return perf_counter()


@dataclass
class _EpochTimer:
    """The time of one epoch, and how much of it was waiting for data; in seconds."""

    start: float | None = None
    waiting_since: float | None = None
    first_step: int | None = None
    paused_at: float | None = None
    waited: float = 0.0

    def resume(self, now: float) -> None:
        if self.paused_at is None or self.start is None:
            return
        pause, self.paused_at = now - self.paused_at, None
        self.start += pause
        if self.waiting_since is not None:
            self.waiting_since += pause
