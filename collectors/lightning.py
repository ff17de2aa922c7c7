"""Lightning's callback: collects what a loss landscape is drawn from while a ``Trainer`` trains.

Lightning comes as two packages, ``lightning`` and ``pytorch_lightning``, each with its own classes. A collector is a
callback of every one that is imported when the collector is made; if none is, of every one that is installed.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self, cast

from .recording.trainer_collector import TrainerCollector, takes_arguments_of

_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_SHARDED = ("FSDP", "DeepSpeed", "ModelParallel")


class SummaryCollector(TrainerCollector):
    """Collects checkpoints and summaries as a callback of Lightning's ``Trainer``.

    Takes the arguments of ``collectors.SummaryCollector``. A step is an optimizer step, however many batches it
    accumulates; where several optimizers move in turn, it is a batch after which any of them has moved. Checkpoints
    hold the LightningModule's parameters and buffers under its own names. In a distributed training rank 0 writes;
    where the strategy divides the parameters among processes, they are gathered there. A training that resumes from
    Lightning's own checkpoint (``trainer.fit(..., ckpt_path=...)``) continues the numbering; pass
    ``existing="resume"`` then.

    Example::

        from collectors.lightning import SummaryCollector

        collector = SummaryCollector("run", collect_landscape={"unit": "epoch", "intervals": [range(0, 11)]})
        lightning.Trainer(max_epochs=10, callbacks=[collector]).fit(module, datamodule)

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        ImportError: no Lightning is installed.
    """

    @takes_arguments_of(TrainerCollector.__init__)
    def __new__(cls, *arguments: Any, **options: Any) -> Self:  # noqa: ARG004
        """Returns an object of this class that is a callback of Lightning's packages as well."""
        return cast(Self, object.__new__(_callback_class(cast(Any, cls), _callback_bases())))

    @takes_arguments_of(TrainerCollector.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._steps_done: int | None = None
        self._trainer_step = 0
        self._losses: list[Any] = []

    @property
    def state_key(self) -> str:
        """The key of the state in Lightning's checkpoints, the same for both of its packages."""
        return "collectors.lightning.SummaryCollector"

    def state_dict(self) -> dict[str, Any]:
        return {} if self._steps_done is None else {"steps": self._steps_done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._steps_done = state_dict.get("steps")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._trainer_step = trainer.global_step
        resumed = self._trainer_step > 0
        # By hand, several optimizers may move in one step, and Lightning counts each of them; its checkpoint may come
        # from a training without a collector.
        if pl_module.automatic_optimization or not resumed or self._steps_done is None:
            self._steps_done = self._trainer_step
        self._losses = []
        # Where a strategy divides the parameters among processes, its wrapper holds them, not the module.
        divides = type(trainer.strategy).__name__.startswith(_SHARDED)
        self._open(
            trainer.strategy.model if divides else pl_module,
            steps_per_epoch=_steps_per_epoch(trainer, pl_module),
            start_epoch=trainer.current_epoch,
            start_step=self._steps_done,
            optimizer=trainer.optimizers[0] if len(trainer.optimizers) == 1 else None,
            epochs=trainer.max_epochs if (trainer.max_epochs or 0) > 0 else None,
        )

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Reads the learning rate: Lightning's schedulers set the next one before the batch ends."""
        if self._run is not None and not self._losses:
            self._run.begin_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._run is None:
            return
        loss: Any = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        self._losses.append(loss.detach() if hasattr(loss, "detach") else loss)
        if trainer.global_step != self._trainer_step:
            self._trainer_step = trainer.global_step
            self._steps_done = (self._steps_done or 0) + 1
            losses, self._losses = self._losses, []
            # Of accumulated batches Lightning gives shares, in a last group that is too small as well.
            share = trainer.accumulate_grad_batches / len(losses)
            self._run.step(None if any(item is None for item in losses) else sum(losses) * share)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Counts an epoch; one that max_steps cut short does not count."""
        if self._run is not None and trainer.is_last_batch:
            self._run.end_epoch()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._leave(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._leave(exception)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so pickle cannot find it by name.
        kind_of_user = next(kind for kind in type(self).__mro__ if "__is_made_here__" not in vars(kind))
        return _make_anew, (kind_of_user,), vars(self)


def _callback_bases() -> tuple[type, ...]:
    imported = [path for name, path in _PACKAGES.items() if name in sys.modules]
    paths = imported or [path for name, path in _PACKAGES.items() if find_spec(name) is not None]
    if not paths:
        raise ImportError(
            "collectors.lightning needs Lightning, which is not installed: pip install 'summary-landscape[lightning]'"
        )
    return tuple(import_module(path).Callback for path in paths)


@functools.cache
def _callback_class(cls: type[Any], bases: tuple[type, ...]) -> type[Any]:
    missing = tuple(base for base in bases if not issubclass(cls, base))
    if not missing:
        return cls
    names = {"__is_made_here__": True, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, *missing), names)


def _make_anew(cls: Any) -> Any:
    return cls.__new__(cls)


def _steps_per_epoch(trainer: Any, pl_module: Any) -> int | None:
    """Returns the optimizer steps per epoch if they are certain before the first epoch, else None."""
    batches: float = trainer.num_training_batches
    varies = any(type(item).__name__ == "GradientAccumulationScheduler" for item in trainer.callbacks)
    if not pl_module.automatic_optimization or varies or not math.isfinite(batches) or batches < 1:
        return None
    return math.ceil(batches / int(trainer.accumulate_grad_batches))
