"""What the networks on a plane are: its origin, checkpoints and final weights of runs, networks that a user named."""

from __future__ import annotations

from dataclasses import dataclass

ORIGIN = "origin"  # the role of a plane's origin of which nothing else is known: it may be trained or not
NETWORK = "named network"  # the role of weights that belong to no run; the user named them
CHECKPOINT = "checkpoint"  # the role of a run's weights at an epoch or a step
FINAL_WEIGHTS = "final weights"  # the role of the checkpoint with the weights that a run's training ended with
ROLES = (ORIGIN, NETWORK, CHECKPOINT, FINAL_WEIGHTS)

NO_RUN = -1  # stands for the run of a network that belongs to none

_LONGEST_NAME = 100


@dataclass(frozen=True)
class OriginRole:
    """Which network a plane's origin is."""

    role: str = ORIGIN  # one of ``ROLES``
    name: str = ""  # of a named network; else ""
    run: str = ""  # the name of the run that it belongs to; "" where it has none
    number: int | None = None  # of the run's checkpoint; else None


UNKNOWN = OriginRole()  # of an origin of which nothing is known


def named_origin(name: object) -> OriginRole:
    """Returns the role of an origin that a user named; of one of which nothing is known where the name is None."""
    return UNKNOWN if name is None else OriginRole(NETWORK, check_name("name", name))


def check_name(label: str, name: object, *, needed: bool = True) -> str:
    """Returns a name of a run or a network, or raises where it is no text, not printable, too long, or blank."""
    if not isinstance(name, str):
        raise TypeError(f"{label} must be a str, but got {type(name).__name__}: {name!r}.")
    if not name.isprintable() or len(name) > _LONGEST_NAME or (needed and not name.strip()):
        least = 1 if needed else 0
        raise ValueError(f"{label} must be a name of {least} to {_LONGEST_NAME} printable letters, but got {name!r}.")
    return name
