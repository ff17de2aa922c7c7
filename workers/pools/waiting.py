"""Waits for actors' answers, but not where what runs them is dead."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from typing import Any

from collectors.files import system

from ..errors import PoolError
from .local_actors import LocalActors

_LOOK_SECONDS = 1.0


def check_ray_alive(ray: Any) -> None:
    """Looks whether Ray's own process on this machine still answers, or the one that starts local workers.

    Args:
        ray: the module, connected, or what stands for it.

    Raises:
        PoolError: it does not. Some seconds later Ray would end this process without a message.
    """
    if isinstance(ray, LocalActors):
        ray.check_alive()
        return
    path = getattr(getattr(ray._private.worker, "_global_node", None), "raylet_socket_name", None)
    if path is None or system.WINDOWS:  # a client of a cluster elsewhere
        return
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
    except OSError as error:
        raise PoolError(
            f"Ray's raylet on this machine does not answer any more ({error.strerror}). Likely causes: the system "
            "killed it because memory ran out, or somebody stopped Ray. What was measured is in the file; run the same "
            "call again to go on."
        ) from error


def wait_while_alive(
    ray: Any, references: Sequence[Any], *, count: int = 1, seconds: float = math.inf
) -> tuple[list[Any], list[Any]]:
    """Waits for some of the answers.

    Args:
        ray: the module, connected.
        references: of the answers.
        count: for how many of them.
        seconds: for how long.

    Returns:
        References of the answers that came, and of the others.

    Raises:
        PoolError: what runs the actors died meanwhile.
    """
    end = time.monotonic() + seconds
    while True:
        timeout = min(max(end - time.monotonic(), 0.0), _LOOK_SECONDS)
        came, late = ray.wait(list(references), num_returns=count, timeout=timeout)
        if len(came) >= count or time.monotonic() >= end:
            return came, late
        check_ray_alive(ray)


def get_while_alive(ray: Any, references: Sequence[Any]) -> list[Any]:
    """Returns all answers; the first one that is an error is raised as soon as it comes.

    Raises:
        PoolError: what runs the actors died meanwhile.
        RayError: as Ray's own ``get``.
    """
    late: list[Any] = list(references)
    answers: dict[Any, Any] = {}
    try:
        while late:
            came, late = wait_while_alive(ray, late)
            answers |= zip(came, ray.get(came), strict=True)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError:
        # Workers die with the raylet, which is the cause to report.
        check_ray_alive(ray)
        raise
    return [answers[reference] for reference in references]
