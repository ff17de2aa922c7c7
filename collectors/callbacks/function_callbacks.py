"""Callbacks made from functions: LambdaCallback, and LearningRateScheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..validation import check_bool, check_float, wrong_type
from .callback import HOOKS, BuiltInCallback, RunContext, add_hooks, in_evaluation

Hook = Callable[[RunContext], Any]


class LambdaCallback(BuiltInCallback):
    """Calls the given functions, each with the run context, where the hook of that name runs.

    Each argument is a function of the run context, or None, and has the name of its hook (see ``Callback``). It takes
    part in the evaluations inside ``Model.fit`` as well. As in ``Callback``, ``epoch_begin`` and the other five names
    without a phase run in training and in evaluation, except where the hook of that phase is given too: then that one
    runs in its place. Those six may be given by position, in the order of MindSpore's documentation.

    Raises:
        TypeError: an argument is neither a function nor None.
    """

    called_in_fit_evaluation = True

    def __init__(
        self,
        epoch_begin: Hook | None = None,
        epoch_end: Hook | None = None,
        step_begin: Hook | None = None,
        step_end: Hook | None = None,
        begin: Hook | None = None,
        end: Hook | None = None,
        *,
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
    ) -> None:
        given = locals()
        self._functions: dict[str, Hook] = {name: given[name] for name in HOOKS if given[name] is not None}
        for name, function in self._functions.items():
            if not callable(function):
                raise wrong_type(name, "a function of one argument (the run context) or None", function)

    def _call(self, hook: str, run_context: RunContext) -> None:
        function = self._functions.get(hook)
        if function is None:
            getattr(super(), hook)(run_context)
        else:
            function(run_context)


add_hooks(LambdaCallback, LambdaCallback._call)


class LearningRateScheduler(BuiltInCallback):
    """Sets the learning rate after each training step; the next step is the first to use it.

    Every parameter group of the optimizer has its own learning rate: the function is called once for each, in
    their order. If one result is wrong, no group is changed. In evaluation nothing happens.

    Args:
        learning_rate_function: called with the present learning rate (a float) and the number of steps done
            (``cb_params.cur_step_num``, 1 after the first step); returns the learning rate of the next step, a
            finite number that is not negative.
        before_first_step: whether to call it before the first step as well, with 0 steps done (or as many as
            were done before a resume).

    Raises:
        TypeError: an argument has the wrong type; at train begin, ``cb_params.optimizer`` has no parameter
            groups; in a step, the function returns no number.
        ValueError: in a step, the function returns NaN, infinity or a negative number.
    """

    def __init__(
        self, learning_rate_function: Callable[[float, int], float], *, before_first_step: bool = False
    ) -> None:
        if not callable(learning_rate_function):
            expected = "a function of (learning rate, number of steps done) that returns a learning rate"
            raise wrong_type("learning_rate_function", expected, learning_rate_function)
        self._function = learning_rate_function
        self._before_first_step = check_bool("before_first_step", before_first_step)

    def begin(self, run_context: RunContext) -> None:
        if not in_evaluation(run_context):
            _parameter_groups(run_context.original_args())
            if self._before_first_step:
                self._schedule(run_context.original_args())

    def step_end(self, run_context: RunContext) -> None:
        if not in_evaluation(run_context):
            self._schedule(run_context.original_args())

    def _schedule(self, params: dict[str, Any]) -> None:
        step = int(params.get("cur_step_num", 0))
        groups = _parameter_groups(params)
        rates = []
        for index, group in enumerate(groups):
            result: Any = self._function(float(group["lr"]), step)
            if getattr(result, "shape", None) == () and hasattr(result, "item"):
                result = result.item()
            name = f"the result of learning_rate_function for parameter group {index} after step {step}"
            rates.append(check_float(name, result, minimum=0.0))
        for group, rate in zip(groups, rates, strict=True):
            if hasattr(group["lr"], "fill_"):
                # A compiled or captured optimizer step reads this very tensor.
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def _parameter_groups(params: dict[str, Any]) -> list[dict[str, Any]]:
    optimizer = params.get("optimizer")
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list):
        raise wrong_type("cb_params.optimizer", "an optimizer with param_groups, as PyTorch's are", optimizer)
    return groups
