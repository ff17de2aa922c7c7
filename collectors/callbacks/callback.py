"""What a trainer tells its callbacks: the hooks, and the context that every hook is given."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..process_rank import parallel_parameters
from ..validation import check_instance, wrong_type

if TYPE_CHECKING:
    import torch


LEGACY_HOOKS = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")
TRAIN_HOOKS = tuple(f"on_train_{name}" for name in LEGACY_HOOKS)
EVAL_HOOKS = tuple(f"on_eval_{name}" for name in LEGACY_HOOKS)
STEP_EVENTS = (
    "before_dataloader", "after_dataloader", "before_train_batch", "before_forward", "after_forward", "before_loss",
    "after_loss", "before_backward", "after_backward", "after_train_batch", "eval_before_forward", "eval_after_forward",
)  # fmt: skip
"""What a ``StepListener`` hears, in the order of a step of training, then of an evaluation."""
HOOKS = (*LEGACY_HOOKS, *TRAIN_HOOKS, *EVAL_HOOKS)


class _KeysAsAttributes:
    """A mapping whose keys are attributes as well; one that is missing is an AttributeError."""

    def __getattr__(self: Any, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(self._missing(name)) from None

    def __setattr__(self: Any, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self: Any, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(self._missing(name)) from None

    def _missing(self: Any, name: str) -> str:
        return f"cb_params has no {name!r} at this moment; it has {sorted(self)}."


class CallbackParameters(_KeysAsAttributes, dict[str, Any]):
    """A dictionary whose keys are attributes as well: ``parameters.mode`` is ``parameters["mode"]``."""


class _PlainParameters(_KeysAsAttributes, UserDict[str, Any]):
    """The entries of a plain dictionary, live, as attributes too."""

    def __init__(self, entries: dict[str, Any]) -> None:
        # UserDict's would copy them.
        object.__setattr__(self, "data", entries)


class RunContext:
    """What the hooks of one run share: the run's parameters, and the request to stop it.

    Args:
        original_args: the run's parameters; every hook sees this same object.

    Raises:
        TypeError: ``original_args`` is not a dictionary.
    """

    def __init__(self, original_args: dict[str, Any]) -> None:
        self._original_args = check_instance("original_args", original_args, dict, "a dict")
        self._stop_requested = False

    def original_args(self) -> Any:
        """Returns the run's parameters, live: what one callback changes, the others see."""
        return self._original_args

    def request_stop(self) -> None:
        """Asks the trainer to stop after the present step or epoch; it cannot be taken back."""
        self._stop_requested = True

    def get_stop_requested(self) -> bool:
        """Returns whether any callback asked to stop."""
        return self._stop_requested


def parameters_of(run_context: RunContext) -> Any:
    """Returns a run's parameters, live and with attributes, also where somebody's own loop has a plain dictionary."""
    given = run_context.original_args()
    return _PlainParameters(given) if type(given) is dict else given


# What a training gets back after an evaluation inside it.
_OF_TRAINING = ("mode", "cur_step_num", "batch_num", "dataset_sink_mode", "net_outputs")


def training_parameters(step: int, scaler: Any, **known: Any) -> CallbackParameters:
    """Returns the parameters of a training that begins: what its trainer knows, and what all have."""
    return CallbackParameters(
        mode="train",
        **known,
        **parallel_parameters(),
        train_dataset_element=None,
        cur_step_num=step,
        initial_step=step,
        dataset_sink_mode=False,
        loss_scale_manager=scaler,
        # The reference's spelling, for callbacks that were written against it.
        loss_scale_mananger=scaler,
        last_save_ckpt_step=None,
        latest_ckpt_file=None,
    )


def begin_evaluation(params: CallbackParameters, network: Any, dataset: Any, batch_num: int | None) -> dict[str, Any]:
    """Sets the parameters for an evaluation, and returns those of the training around it."""
    training = {key: params[key] for key in _OF_TRAINING if key in params}
    params.update(
        mode="eval",
        eval_network=network,
        valid_dataset=dataset,
        batch_num=batch_num,
        cur_step_num=0,
        dataset_sink_mode=False,
    )
    return training


class Callback:
    """The base of all callbacks: override the hooks that matter, each takes the run's ``RunContext``.

    The ``on_train_*`` hooks run in training, the ``on_eval_*`` hooks in evaluation. The six legacy hooks
    (``begin``, ``epoch_begin``, ``step_begin``, ``step_end``, ``epoch_end``, ``end``) run in both
    (``cb_params.mode`` tells which), unless the hook of that phase is overridden and does not call
    ``super()``. A callback is a context manager: the trainer enters it once before the run and leaves it
    once after it, whatever happens. A run ends either with the end hook or with ``on_exception``.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception_type: Any, exception: BaseException | None, traceback: Any) -> bool | None:
        return None

    def begin(self, run_context: RunContext) -> None:
        """Runs once before the first epoch of a training or an evaluation (legacy)."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Runs before each epoch (legacy)."""

    def step_begin(self, run_context: RunContext) -> None:
        """Runs before each step, when its batch is there (legacy)."""

    def step_end(self, run_context: RunContext) -> None:
        """Runs after each step (legacy)."""

    def epoch_end(self, run_context: RunContext) -> None:
        """Runs after each epoch (legacy)."""

    def end(self, run_context: RunContext) -> None:
        """Runs once after the last epoch (legacy)."""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Runs once before training."""
        self.begin(run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Runs before each training epoch."""
        self.epoch_begin(run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Runs before each training step, when its batch is there."""
        self.step_begin(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Runs after each training step; ``cb_params.net_outputs`` is its loss."""
        self.step_end(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Runs after each training epoch, and after the evaluation of that epoch when there was one."""
        self.epoch_end(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Runs once after training, also when a callback asked to stop; not after an exception."""
        self.end(run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Runs once before each evaluation."""
        self.begin(run_context)

    def on_eval_epoch_begin(self, run_context: RunContext) -> None:
        """Runs before the pass over the data of an evaluation."""
        self.epoch_begin(run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        """Runs before each step of an evaluation, when its batch is there."""
        self.step_begin(run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """Runs after each step of an evaluation, before the metrics take it in."""
        self.step_end(run_context)

    def on_eval_epoch_end(self, run_context: RunContext) -> None:
        """Runs after the pass over the data of an evaluation; the metrics are not computed yet."""
        self.epoch_end(run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Runs once after each evaluation; ``cb_params.metrics`` holds its results."""
        self.end(run_context)

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        """Runs instead of the end hook when the run fails or is interrupted, before callbacks are left."""


def add_hooks(kind: type[Any], call: Callable[[Any, str, Any], None], names: Iterable[str] = HOOKS) -> None:
    """Gives a class hooks that all do the same, methods that a subclass may override: ``call`` with the hook's name."""

    def hook_called(name: str) -> Callable[[Any, Any], None]:
        def hook(self: Any, run_context: Any) -> None:
            call(self, name, run_context)

        # So that the text of the overridden method is found.
        hook.__module__, hook.__name__, hook.__qualname__ = kind.__module__, name, f"{kind.__name__}.{name}"
        return hook

    for name in names:
        setattr(kind, name, hook_called(name))


class BuiltInCallback(Callback):
    """Our callbacks' base: the work is in the legacy hooks, so that a loop of one's own can call these alone."""

    called_in_fit_evaluation = False  # also the on_eval_* hooks of evaluations inside Model.fit


class StepListener(Callback):
    """A callback that also hears what ``Model`` does within steps; for callbacks of other libraries."""

    def inside_step(self, event: str, run_context: RunContext, **values: Any) -> None:
        """Runs at one of ``STEP_EVENTS``; values: ``outputs`` after a forward pass, ``loss`` after the loss."""


def in_evaluation(run_context: RunContext) -> bool:
    """Returns whether a hook belongs to an evaluation; a loop that does not say what it does trains."""
    return bool(run_context.original_args().get("mode") == "eval")


def step_loss(net_outputs: Any) -> float | torch.Tensor:
    """Returns the loss of a step: the first item of a tuple or list, the mean of an array; NaN and infinity stay."""
    loss = net_outputs
    while isinstance(loss, tuple | list) and loss:
        loss = loss[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(loss, torch.Tensor):
        if loss.numel() == 0 or loss.is_complex():
            raise _no_number(net_outputs)
        # float64, so that the mean of many float16 losses does not overflow; Apple's GPUs lack it.
        mean = loss.detach().to(torch.float32 if loss.device.type == "mps" else torch.float64).mean()
        # A tensor of shape () where reading it would make the training wait for an accelerator.
        return float(mean) if mean.device.type == "cpu" else mean
    try:
        array = np.asarray(loss)
        # Kind "V" is how numpy sees bfloat16 and the float8 types.
        numbers = array.astype(np.float64) if array.dtype.kind in "iufV" else np.empty(0)
    except (TypeError, ValueError) as error:
        raise _no_number(net_outputs) from error
    if numbers.size == 0:
        raise _no_number(net_outputs)
    return float(numbers.mean())


def _no_number(net_outputs: Any) -> TypeError:
    expected = (
        "the loss (a number, a real array or tensor of at least one element) or a tuple or list that begins with it"
    )
    return wrong_type("cb_params.net_outputs", expected, net_outputs)
