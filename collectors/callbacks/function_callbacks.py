"""LambdaCallback: a callback out of plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .callback import BuiltInCallback, RunContext
from .validation import wrong_type

Hook = Callable[[RunContext], Any]


class LambdaCallback(BuiltInCallback):
    """Calls the given functions, each with the run context, where the hook of that name runs.

    The evaluations inside ``Model.fit`` are heard as well. As in ``Callback``, the legacy hooks run in training
    and in evaluation, except where the hook of that phase is given too: then that one runs in its place.

    Args:
        on_train_epoch_begin: a function of the run context, or None, as are all others.
        on_train_epoch_end: see ``Callback`` for when each hook runs.
        on_train_step_begin: likewise.
        on_train_step_end: likewise.
        on_train_begin: likewise.
        on_train_end: likewise.
        on_eval_epoch_begin: likewise.
        on_eval_epoch_end: likewise.
        on_eval_step_begin: likewise.
        on_eval_step_end: likewise.
        on_eval_begin: likewise.
        on_eval_end: likewise.
        epoch_begin: legacy, runs in both phases.
        epoch_end: legacy.
        step_begin: legacy.
        step_end: legacy.
        begin: legacy.
        end: legacy.

    Raises:
        TypeError: an argument is neither a function nor None.
    """

    called_in_fit_evaluation = True

    def __init__(
        self,
        on_train_epoch_begin: Hook | None = None,
        on_train_epoch_end: Hook | None = None,
        on_train_step_begin: Hook | None = None,
        on_train_step_end: Hook | None = None,
        on_train_begin: Hook | None = None,
        on_train_end: Hook | None = None,
        on_eval_epoch_begin: Hook | None = None,
        on_eval_epoch_end: Hook | None = None,
        on_eval_step_begin: Hook | None = None,
        on_eval_step_end: Hook | None = None,
        on_eval_begin: Hook | None = None,
        on_eval_end: Hook | None = None,
        *,
        epoch_begin: Hook | None = None,
        epoch_end: Hook | None = None,
        step_begin: Hook | None = None,
        step_end: Hook | None = None,
        begin: Hook | None = None,
        end: Hook | None = None,
    ) -> None:
        hooks = {
            "on_train_epoch_begin": on_train_epoch_begin,
            "on_train_epoch_end": on_train_epoch_end,
            "on_train_step_begin": on_train_step_begin,
            "on_train_step_end": on_train_step_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_eval_epoch_begin": on_eval_epoch_begin,
            "on_eval_epoch_end": on_eval_epoch_end,
            "on_eval_step_begin": on_eval_step_begin,
            "on_eval_step_end": on_eval_step_end,
            "on_eval_begin": on_eval_begin,
            "on_eval_end": on_eval_end,
            "epoch_begin": epoch_begin,
            "epoch_end": epoch_end,
            "step_begin": step_begin,
            "step_end": step_end,
            "begin": begin,
            "end": end,
        }
        for name, function in hooks.items():
            if function is None:
                continue
            if not callable(function):
                raise wrong_type(name, "a function of one argument (the run context) or None", function)
            # On the object, where it comes before the method of the class.
            setattr(self, name, function)
