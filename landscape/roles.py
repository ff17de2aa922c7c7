"""Who the networks on a plane are: its origin, checkpoints and final weights of runs, networks that a user named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ORIGIN = "origin"
"""The role of a plane's origin of which nothing else is known: it may be trained or not."""
NETWORK = "named network"
"""The role of weights that belong to no run; the user named them."""
CHECKPOINT = "checkpoint"
"""The role of a run's weights at an epoch or a step."""
FINAL_WEIGHTS = "final weights"
"""The role of the checkpoint with the weights that a run's training ended with."""
ROLES = (ORIGIN, NETWORK, CHECKPOINT, FINAL_WEIGHTS)

NO_RUN = -1
"""Stands for the run of a network that belongs to none."""

_LONGEST_NAME = 100
_SHOWN, _SHOWN_LETTERS = 4, 24


@dataclass(frozen=True)
class OriginRole:
    """Which network a plane's origin is.

    Attributes:
        role: one of ``ROLES``.
        name: of a named network; else "".
        run: the name of the run that it belongs to; "" where it has none.
        number: of the run's checkpoint; else None.
    """

    role: str = ORIGIN
    name: str = ""
    run: str = ""
    number: int | None = None


UNKNOWN = OriginRole()
"""Of an origin of which nothing is known."""


@dataclass(frozen=True)
class Members:
    """Who n networks are; the rows of one run are its path, in order.

    Attributes:
        number: n numbers of checkpoints; a network of no run has its place among the rows.
        run: n places in ``runs``; -1 for a network of no run.
        runs: the runs' names; a single run may have the name "".
        name: n names of networks; "" for a checkpoint, which its number names.
        final: n times whether it holds the weights with which its run's training ended.
        sha256: n times the SHA-256 by which its weights are recognized; empty where nobody computed them.
    """

    number: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    final: tuple[bool, ...] = ()
    sha256: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Says who they are in a few words."""
        parts = []
        for index, name in enumerate(self.runs):
            count = self.run.count(index)
            of_run = f" of {_shortened(name)}" if name else ""
            parts.append(f"{count} checkpoint{'s' * (count != 1)}{of_run}")
        named = [_shortened(name) for name, run in zip(self.name, self.run, strict=True) if run == NO_RUN]
        if named:
            more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
            parts.append(f"networks {', '.join(named[:_SHOWN])}{more}")
        if len(parts) > _SHOWN:
            parts[_SHOWN:] = [f"{len(parts) - _SHOWN} more"]
        return ", ".join(parts)

    @classmethod
    def of_runs(cls, runs: Mapping[str, Sequence[int]], finished: Sequence[bool]) -> Members:
        """Returns runs' checkpoints, by number; the last of a ``finished`` run holds its final weights."""
        numbers = list(runs.values())
        return cls(
            number=tuple(number for of_run in numbers for number in of_run),
            run=tuple(index for index, of_run in enumerate(numbers) for _ in of_run),
            runs=tuple(runs),
            name=("",) * sum(map(len, numbers)),
            final=tuple(
                whole and place == len(of_run) - 1
                for of_run, whole in zip(numbers, finished, strict=True)
                for place in range(len(of_run))
            ),
        )

    @classmethod
    def of_networks(cls, names: Sequence[str]) -> Members:
        """Returns networks that belong to no run."""
        count = len(names)
        return cls(tuple(range(count)), (NO_RUN,) * count, (), tuple(names), (False,) * count)

    def origin(self, row: int) -> OriginRole:
        """Returns the role of an origin that is one of the rows."""
        if self.run[row] == NO_RUN:
            return OriginRole(NETWORK, self.name[row])
        role = FINAL_WEIGHTS if self.final[row] else CHECKPOINT
        return OriginRole(role, run=self.runs[self.run[row]], number=self.number[row])


NOBODY = Members()
"""No networks beside the origin."""


def check_name(label: str, name: object, *, needed: bool = True) -> str:
    """Returns a name of a run or a network, or raises where it is no text, not printable, too long, or blank."""
    if not isinstance(name, str):
        raise TypeError(f"{label} must be a str, but got {type(name).__name__}: {name!r}.")
    if not name.isprintable() or len(name) > _LONGEST_NAME or (needed and not name.strip()):
        least = 1 if needed else 0
        raise ValueError(f"{label} must be a name of {least} to {_LONGEST_NAME} printable letters, but got {name!r}.")
    return name


def _shortened(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_LETTERS else f"{name[: _SHOWN_LETTERS - 3]}...")
