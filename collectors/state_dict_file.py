"""State dicts in files of any kind, read as named arrays; no code from a file ever runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checkpoint_file import CheckpointFile
from .errors import CheckpointError
from .network_state import Array, canonical_name

_NESTED_KEYS = ("state_dict", "model_state_dict", "model", "module", "network", "net", "params", "weights")


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Returns the named tensors of a checkpoint file, each storage once, under canonical names.

    Raises:
        CheckpointError: the file is missing, damaged, holds no tensors, or needs code from the file to be read.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        file = CheckpointFile(path)
        return _canonical(path, {name: file.read(name) for name in file.shapes})
    return _read_torch_file(path)


def _read_torch_file(path: Path) -> dict[str, Array]:
    import pickle

    import torch

    from .torch_state import to_array

    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read as plain tensors ({str(error).splitlines()[0]}). If you trust the "
            "file, load "
            "it yourself and save its state dict alone with torch.save(network.state_dict(), ...)."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged or no PyTorch file ({error}); copy it again.") from error
    tensors = {name: item for name, item in _find_tensors(path, content).items() if isinstance(item, torch.Tensor)}
    seen: set[tuple[Any, ...]] = set()
    result = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in seen:
            continue
        seen.add(key)
        result[name] = to_array(tensor)
    return _canonical(path, result)


def _find_tensors(path: Path, content: object) -> Mapping[str, Any]:
    import torch

    if isinstance(content, Mapping):
        if any(isinstance(item, torch.Tensor) for item in content.values()):
            return {str(name): item for name, item in content.items()}
        for key in _NESTED_KEYS:
            if isinstance(content.get(key), Mapping):
                return _find_tensors(path, content[key])
        raise CheckpointError(
            f"checkpoint {path} holds no tensors at its top level and none of the keys {list(_NESTED_KEYS)}; it has "
            f"{[str(key) for key in content][:20]}. Save the state dict alone."
        )
    raise CheckpointError(f"checkpoint {path} holds a {type(content).__name__}, not a dictionary of tensors.")


def _canonical(path: Path, state: Mapping[str, Array]) -> dict[str, Array]:
    result: dict[str, Array] = {}
    for name, array in state.items():
        short = canonical_name(name)
        if short in result:
            raise CheckpointError(
                f"checkpoint {path} has two tensors called {short!r} once wrapper prefixes are removed."
            )
        result[short] = array
    if not result:
        raise CheckpointError(f"checkpoint {path} holds no tensors.")
    return result
