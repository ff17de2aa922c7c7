"""State dicts in files of any kind, read as named arrays; no code from a file ever runs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError, reason_of
from ..networks.weight_space import canonical_name
from .safetensors_file import RESERVED_PREFIX, CheckpointFile
from .sharded_folder import METADATA, DividedTensor, ShardedFolder, find_sharded_folder
from .tensor_pickle import Described, StoredTensor, UnreadableTensor, UnsupportedPickleError
from .torch_archive import element_type, open_archive
from .zero_folder import find_zero_folder, read_zero_folder

_NESTED_KEYS = ("state_dict", "model_state_dict", "model", "module", "network", "net", "params", "weights")
_TENSORS = (StoredTensor, UnreadableTensor, DividedTensor)
_DEEPEST = 4
# Tied weights may name the same values in several shapes.
_MOST_VIEWS = 4


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Returns the named tensors of a checkpoint, each storage once, under canonical names.

    Args:
        path: a file, or a folder that ``torch.distributed.checkpoint`` or DeepSpeed wrote.

    Raises:
        CheckpointError: it is missing, damaged, holds no tensors, or needs code from a file to be read.
    """
    path = Path(path)
    try:
        return _read_any(path)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {reason_of(error)}.") from error


def _read_any(path: Path) -> dict[str, NDArray[Any]]:
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() == ".safetensors":
        file = CheckpointFile(path)
        # What a ModelCheckpoint saves besides the weights (optimizer state and the like) is not part of the network.
        weights = [name for name in file.shapes if not name.startswith(RESERVED_PREFIX)]
        return _canonical(path, {name: file.read(name) for name in weights})
    if path.suffix.lower() == ".ckpt":
        from .mindspore_file import is_mindspore_file, load_ckpt, without_optimizer

        # Lightning's files have the same suffix.
        if path.is_file() and is_mindspore_file(path):
            return _canonical(path, without_optimizer(load_ckpt(path)))
    return _read_torch_file(path)


def _read_torch_file(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist.")
    with _readable(path, "no PyTorch file"), open_archive(path) as archive:
        tensors = _readable_tensors(path, archive.content)
        return _canonical(path, archive.read(tensors))


def _read_folder(path: Path) -> dict[str, NDArray[Any]]:
    parts = find_zero_folder(path)
    if parts is not None:
        with _readable(path, "not whole"):
            return _canonical(path, read_zero_folder(parts))
    parts = find_sharded_folder(path)
    if parts is None:
        raise CheckpointError(
            f"checkpoint {path} is a folder, but neither torch.distributed.checkpoint wrote it (it has no {METADATA}) "
            "nor DeepSpeed (it has no *_model_states.pt, and no file 'latest' that names a folder with such); give the "
            "folder that holds these files."
        )
    with _readable(path, "not whole"):
        folder = ShardedFolder(parts)
        found = _find_tensors(path, folder.content)
        tensors = {name: tensor for name, tensor in found.items() if isinstance(tensor, DividedTensor)}
        if sum(math.prod(item.shape) * element_type(item.dtype).itemsize for item in tensors.values()) > folder.size:
            raise ValueError(f"its tensors claim more than the {folder.size} bytes of its parts")
        return _canonical(path, folder.read(tensors))


@contextlib.contextmanager
def _readable(path: Path, otherwise: str) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except UnsupportedPickleError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read as plain tensors ({_first_line(error)}). "
            "If you trust the file, load it yourself and save its state dict alone with "
            "torch.save(network.state_dict(), ...)."
        ) from error
    except Exception as error:
        # Damaged bytes make a reader raise nearly anything.
        raise CheckpointError(
            f"checkpoint {path} is damaged or {otherwise} ({_reason(error)}); copy it again."
        ) from error


def _readable_tensors(path: Path, content: object) -> dict[str, StoredTensor]:
    """Returns where the network's tensors lie, each storage once, provided that they fit into the file's size."""
    limit = path.stat().st_size
    left = _MOST_VIEWS * limit
    result: dict[str, StoredTensor] = {}
    seen: set[StoredTensor] = set()
    for name, tensor in _find_tensors(path, content).items():
        if isinstance(tensor, UnreadableTensor):
            raise CheckpointError(
                f"checkpoint {path} holds {name!r} as a sparse, quantized or empty ('meta') tensor, which cannot be "
                "read; save it as an ordinary tensor."
            )
        if not isinstance(tensor, StoredTensor):
            continue
        count: int = math.prod(tensor.shape)
        if count and tensor in seen:
            continue
        size = count * element_type(tensor.dtype).itemsize
        left -= size
        if size > limit or left < 0:
            # A view that repeats few values (stride 0), or many views of the same, would unfold to any size.
            raise CheckpointError(
                f"checkpoint {path} holds {name!r} of shape {tensor.shape}, more than the file's {limit} bytes; "
                "save a contiguous copy of it."
            )
        seen.add(tensor)
        result[name] = tensor
    return result


def _find_tensors(path: Path, content: object) -> Mapping[str, Any]:
    _check_is_plain("it", content)
    if not isinstance(content, Mapping):
        kind = "Tensor" if isinstance(content, StoredTensor | UnreadableTensor) else type(content).__name__
        raise CheckpointError(f"checkpoint {path} holds a {kind}, not a dictionary of tensors.")
    found = _nested_tensors(content, _DEEPEST)
    if found is None:
        raise CheckpointError(
            f"checkpoint {path} holds no tensors at its top level and none under the keys {list(_NESTED_KEYS)}; it has "
            f"{[str(key)[:80] for key in content if isinstance(key, str)][:20]}. Save the state dict alone."
        )
    for name, item in found.items():
        # It may be a tensor of a class that we do not know.
        _check_is_plain(f"its {name!r}", item)
    tensors = {name: item for name, item in found.items() if isinstance(item, _TENSORS)}
    named = {str(name): item for name, item in tensors.items() if isinstance(name, str | int)}
    if len(named) < len(tensors):
        raise CheckpointError(
            f"checkpoint {path} has tensors whose names are neither texts nor numbers, or are the same once written "
            "out; save a dictionary of tensors with texts as names."
        )
    return named


def _nested_tensors(content: Mapping[Any, Any], depth: int) -> Mapping[Any, Any] | None:
    # Nested first: beside a state dict there may be single tensors, such as an epoch's number.
    for key in _NESTED_KEYS:
        _check_is_plain(f"its {key!r}", content.get(key))
        if depth and isinstance(content.get(key), Mapping):
            found = _nested_tensors(content[key], depth - 1)
            if found is not None:
                return found
    return content if any(isinstance(item, _TENSORS) for item in content.values()) else None


def _check_is_plain(label: str, value: object) -> None:
    if isinstance(value, Described):
        raise UnsupportedPickleError(f"{label} is an object of {value.name[:200]}, which only code can make")


def _reason(error: Exception) -> str:
    # A KeyError's text is nothing but the key.
    return "it refers to what it does not have" if isinstance(error, LookupError) else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _canonical(path: Path, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    result: dict[str, NDArray[Any]] = {}
    for name, array in state.items():
        short = canonical_name(name)
        try:
            short.encode()
        except UnicodeEncodeError as error:
            raise CheckpointError(
                f"checkpoint {path} has a tensor called {name!r}, which is no Unicode text; rename it."
            ) from error
        if short in result:
            raise CheckpointError(
                f"checkpoint {path} has two tensors called {short!r} once wrapper prefixes are removed."
            )
        result[short] = array
    if not result:
        raise CheckpointError(f"checkpoint {path} holds no tensors.")
    return result
