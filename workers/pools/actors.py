"""What a crew needs of whatever runs its workers: Ray, or processes of this machine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ActorError(Exception):
    """An actor gives no answer."""


class ActorDeathError(ActorError):
    """It has died."""


class ActorTaskError(ActorError):
    """A method raised; the text is the traceback in the worker."""


class Actors(ABC):
    """Runs objects, each in a process of its own, whose methods are called one after another.

    Four methods are the contract: ``start``, ``call``, ``wait`` and ``kill``. With them go values: ``put`` stores one
    for all actors, and ``answers`` reads what calls have returned.

    Attributes:
        ray: the module, connected, where Ray runs them; None elsewhere.
        folder: where files lie that the workers share; None where they need none.
    """

    ray: Any = None
    folder: str | None = None

    @abstractmethod
    def start(self, kind: type, arguments: Sequence[Any], needs: Mapping[str, Any]) -> Any:
        """Starts an actor and returns it at once.

        Args:
            kind: its class, which the workers can import.
            arguments: of the class.
            needs: what it reserves, as Ray's ``options`` name it; processes of this machine reserve nothing.
        """

    @abstractmethod
    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Calls a method and returns the call at once; stored values among the arguments arrive as what they hold."""

    @abstractmethod
    def wait(
        self, calls: Sequence[Any], *, count: int = 1, seconds: float | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Waits until some calls are done.

        Args:
            calls: all of them differ.
            count: for how many of them.
            seconds: for how long; None waits as long as it takes.

        Returns:
            At most ``count`` that are done, and all others.

        Raises:
            PoolError: what runs the actors died meanwhile.
        """

    @abstractmethod
    def kill(self, actor: Any) -> None:
        """Ends an actor at once."""

    @abstractmethod
    def put(self, value: Any) -> Any:
        """Stores a value for all actors, once on each machine; it is freed with what this returns."""

    @abstractmethod
    def answers(self, calls: Sequence[Any]) -> list[Any]:
        """Returns the answers of calls that are done.

        Raises:
            ActorTaskError: a method raised.
            ActorDeathError: an actor has died.
            PoolError: what runs them has died.
        """

    def get(self, calls: Sequence[Any]) -> list[Any]:
        """Returns all answers; the first one that is an error is raised as soon as it comes, as by ``answers``."""
        late = list(calls)
        found: dict[Any, Any] = {}
        while late:
            done, late = self.wait(late)
            found |= zip(done, self.answers(done), strict=True)
        return [found[call] for call in calls]


def python_path() -> dict[str, str]:
    """Returns the variable by which workers find this package, before they know the driver's search path."""
    ours = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([before, ours] if before else [ours])}
