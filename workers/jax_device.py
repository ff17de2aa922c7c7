"""Where JAX measures, and its global settings meanwhile; the user's own come back afterwards."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax


@contextlib.contextmanager
def measurement_settings(device: Any) -> Iterator[None]:
    """On the device, in full float32 precision; NaN is a value like any other."""
    with contextlib.ExitStack() as stack:
        for context in (
            jax.default_device(device),
            jax.default_matmul_precision("highest"),
            jax.debug_nans(False),
            jax.debug_infs(False),
        ):
            stack.enter_context(context)
        yield


def find_device(device: str, notes: list[str]) -> Any:
    """Returns JAX's device of that name ("cpu", "cuda:0"); without it the CPU, a warning and a note."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return jax.local_devices(backend="cpu")[0]
    try:
        return jax.local_devices(backend=kind)[int(index or 0)]
    except (RuntimeError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        notes.append(f"JAX cannot use the device {device!r}, so the CPU measures: {reason}")
        warnings.warn(notes[-1], stacklevel=4)
        return jax.local_devices(backend="cpu")[0]


def ran_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception means that a batch was too large."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
