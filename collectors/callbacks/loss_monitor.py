"""LossMonitor: prints the loss, and notices when it stops being a finite number."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from ..validation import check_choice, check_int
from .callback import BuiltInCallback, RunContext, in_evaluation, parameters_of, step_loss

if TYPE_CHECKING:
    import torch


NON_FINITE_ACTIONS = ("raise", "request_stop", "warn")

# Losses left on an accelerator: few enough to notice NaN soon, many enough that waiting costs nothing.
_UNREAD_LIMIT = 64


class LossMonitor(BuiltInCallback):
    """Prints ``epoch: E step: S, loss is L`` to standard output; S counts from 1 within the epoch.

    In ``Model.fit`` it also prints the metrics at the end of every epoch that was evaluated. The loss is
    ``cb_params.net_outputs``: its first item when that is a tuple or list, its mean when that is an array. A
    loss that is NaN or infinite is found in every step. On a GPU, losses that are not printed are read 64 at a
    time and at the end of each epoch, so that steps need not wait; the message names the step where it was.

    Args:
        per_print_times: print when at least this many steps have passed since the last time (at first, since the
            beginning of the run); 0 prints nothing at all.
        non_finite_action: what to do about a loss that is NaN or infinite: "raise" a ValueError,
            "request_stop" (with a warning; the end hooks run as usual), or only "warn". A warning comes at the
            first such step and again when the loss was finite in between.

    Raises:
        TypeError: an argument has the wrong type; in a step, ``net_outputs`` holds no number.
        ValueError: an argument has a wrong value; in a step, the loss is NaN or infinite (see above).
    """

    def __init__(self, per_print_times: int = 1, *, non_finite_action: str = "raise") -> None:
        self._per_print_times = check_int("per_print_times", per_print_times, minimum=0)
        self._non_finite_action = check_choice("non_finite_action", non_finite_action, NON_FINITE_ACTIONS)
        self._restart({})

    def begin(self, run_context: RunContext) -> None:
        self._restart(parameters_of(run_context))

    def epoch_begin(self, run_context: RunContext) -> None:
        self._epoch_start = parameters_of(run_context).get("cur_step_num", 0)

    def step_end(self, run_context: RunContext) -> None:
        params = parameters_of(run_context)
        loss = step_loss(params["net_outputs"])
        epoch, step = params.get("cur_epoch_num", 1), params["cur_step_num"]
        prints = self._is_time_to_print(step)
        in_epoch = params.get("batch_num") if self._data_has_length else None
        # A trainer that counts the steps of an epoch knows best, as after a resume with other batches.
        counted = getattr(run_context, "epoch_steps", None)
        step = counted or int((step - 1) % in_epoch + 1 if in_epoch else step - self._epoch_start)
        self._unread.append((epoch, step, loss))
        if prints or isinstance(loss, float) or len(self._unread) >= _UNREAD_LIMIT:
            self._read_losses(run_context)
        if prints:
            print(f"epoch: {epoch} step: {step}, loss is {float(loss)}", flush=True)

    def epoch_end(self, run_context: RunContext) -> None:
        self._read_losses(run_context)
        params = parameters_of(run_context)
        metrics = params.get("metrics")
        if metrics and self._per_print_times and not in_evaluation(run_context):
            print(f"Eval result: epoch {params.get('cur_epoch_num', 1)}, metrics: {metrics}", flush=True)

    def _restart(self, params: dict[str, Any]) -> None:
        self._last_print: int = params.get("cur_step_num", 0)
        self._epoch_start = self._last_print
        # A trainer learns the length of such a data set in the first epoch; it may differ in the others.
        self._data_has_length = params.get("batch_num", 0) is not None
        self._unread: list[tuple[int, int, float | torch.Tensor]] = []
        self._last_was_finite = True

    def _is_time_to_print(self, step: int) -> bool:
        every = self._per_print_times
        if every == 0:
            return False
        if step <= self._last_print:
            # The trainer went back to an earlier step; printing goes on in the same rhythm from there.
            self._last_print -= math.ceil((self._last_print - step + 1) / every) * every
        if step - self._last_print < every:
            return False
        self._last_print = step
        return True

    def _read_losses(self, run_context: RunContext) -> None:
        unread, self._unread = self._unread, []
        for epoch, step, loss in unread:
            value = float(loss)
            finite = math.isfinite(value)
            if not finite:
                self._act(run_context, epoch, step, value)
            self._last_was_finite = finite

    def _act(self, run_context: RunContext, epoch: int, step: int, loss: float) -> None:
        message = f"In epoch: {epoch} step: {step}, loss is NAN or INF ({loss})"
        remedy = "Lower the learning rate, clip the gradients, or look for such values in the data"
        if self._non_finite_action == "raise":
            raise ValueError(
                f"{message}, terminating training. {remedy}; LossMonitor(non_finite_action='warn') goes on."
            )
        if self._non_finite_action == "request_stop":
            run_context.request_stop()
            message += ", training is asked to stop"
        if self._last_was_finite:
            warnings.warn(f"{message}. {remedy}.", UserWarning, stacklevel=2)
