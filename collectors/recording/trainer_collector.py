"""What the collectors of other libraries' trainers share: their arguments, and an end in any case."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .summary_collector import SummaryCollector
from .watched_training import WatchedTraining

P = ParamSpec("P")
T = TypeVar("T")


def takes_arguments_of(
    source: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Gives a constructor that passes its arguments on, for editors and ``help``, the signature that takes them."""
    return functools.wraps(source, assigned=())


class HasCollector:
    """What of its ``SummaryCollector`` a trainer's callback shows."""

    _collector: SummaryCollector

    @property
    def summary_dir(self) -> str:
        """The run directory."""
        return self._collector.summary_dir

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a training forward pass; see ``collectors.SummaryCollector.capture``."""
        self._collector.capture(plugin, name, value)


class TrainerCollector(HasCollector):
    """A ``SummaryCollector``, with its arguments, that a trainer's hooks drive; the first base of its callback."""

    @takes_arguments_of(SummaryCollector.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._collector = SummaryCollector(*arguments, **options)
        self._run: WatchedTraining | None = None
        self._finalizer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        # Where the trainer has not said that training ended, it failed, even if that error was caught before.
        self._leave(error or TrainingFailedError("training did not end"))

    def _open(self, network: object, **options: Any) -> None:
        """Begins to watch a training; the options are those of ``collectors.SummaryCollector.watch``."""
        # Many trainers do not tell their callbacks that a training failed.
        self._leave(TrainingFailedError("the training before this one did not end"))
        self._run = self._collector.watch(network, **options).__enter__()
        # The run does not refer to this callback, so it does not keep it alive.
        abandoned = TrainingFailedError("training did not end")
        self._finalizer = weakref.finalize(self, self._run.__exit__, None, abandoned, None)

    def _leave(self, error: BaseException | None) -> None:
        """Waits until everything is on disk; a second call does nothing."""
        run, self._run = self._run, None
        if run is not None:
            self._finalizer.detach()
            run.__exit__(None, error, None)


class TrainingFailedError(Exception):
    """Stands for an exception that the trainer did not pass on."""
