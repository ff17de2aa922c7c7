"""The state of all random generators that a training draws from, and of those that a data set owns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ..errors import CheckpointError

# Where data loaders and data sets keep what they are made of.
_PARTS = (
    "sampler", "batch_sampler", "dataset", "datasets", "transform", "target_transform", "transforms", "collate_fn",
)  # fmt: skip


def capture_random_state(dataset: Any) -> dict[str, Any]:
    """Returns the states of Python's, NumPy's and PyTorch's global generators, CUDA's, and the data set's own."""
    # Asking for CUDA's states would start it.
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": _get(random),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if used else [],
        "dataset": {name: _get(generator) for name, generator in dataset_generators(dataset).items()},
    }


def restore_random_state(state: dict[str, Any], dataset: Any) -> None:
    generators = dataset_generators(dataset)
    missing = sorted(set(state["dataset"]) - set(generators))
    if missing:
        raise CheckpointError(
            f"train_dataset has no generators {missing}, which the checkpoint has a state for; resume with the data "
            "set that was trained on, built alike."
        )
    try:
        _set(random, state["python"])
        np.random.set_state(state["numpy"])  # noqa: NPY002
        torch.set_rng_state(state["torch"])
        if torch.cuda.is_available():
            for device, one in enumerate(state["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(one, device)
        for name, one in state["dataset"].items():
            _set(generators[name], one)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"the checkpoint's random state does not fit this process: {error}") from error


def dataset_generators(dataset: Any) -> dict[str, Any]:
    """Returns the random generators that a data set and its parts hold as attributes, by attribute path."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    pending = [("", dataset)]
    while pending:
        path, owner = pending.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        # Of lists only these: a list of samples can be long, and this runs in every epoch.
        if isinstance(owner, list | tuple) and path.endswith(("datasets.", "transforms.")):
            pending += [(f"{path}{index}.", item) for index, item in enumerate(owner)]
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random):
                found[path + name] = value
            elif name in _PARTS:
                pending.append((f"{path}{name}.", value))
    return found


def _get(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    version, numbers, gauss = generator.getstate()
    return [version, np.array(numbers, np.uint32), gauss]


def _set(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator | np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        version, numbers, gauss = state
        generator.setstate((version, tuple(numbers.tolist()), gauss))
