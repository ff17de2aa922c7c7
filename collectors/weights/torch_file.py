"""What a PyTorch file holds: where in it the network's tensors are, and what is wrong with it in words."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..files.file_kinds import damaged, first_line
from ..networks.weight_space import is_extra_state
from .tensor_pickle import Described, DividedTensor, StoredTensor, UnreadableTensor, UnsupportedPickleError
from .torch_archive import MOST_VIEWS, TorchScriptError, byte_count

_NESTED_KEYS = ("state_dict", "model_state_dict", "model", "module", "network", "net", "params", "weights", "state")
_TENSORS = (StoredTensor, UnreadableTensor, DividedTensor)
_DEEPEST = 4


@contextlib.contextmanager
def readable(path: Path, otherwise: str) -> Iterator[None]:
    """Turns whatever a damaged checkpoint makes a reader raise into an error that says what is wrong."""
    try:
        yield
    except CheckpointError:
        raise
    except TorchScriptError as error:
        raise CheckpointError(
            f"checkpoint {path} is a program of TorchScript (torch.jit.save), not a state dict. If you trust the file, "
            "load it yourself and save its weights with torch.save(torch.jit.load(...).state_dict(), ...)."
        ) from error
    except UnsupportedPickleError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read as plain tensors ({first_line(error)}). "
            "If you trust the file, load it yourself where its classes can be imported, and save its state dict alone "
            "with torch.save(network.state_dict(), ...)."
        ) from error
    except Exception as error:
        # Damaged bytes make a reader raise nearly anything.
        # A KeyError's text is nothing but the key.
        reason = "it refers to what it does not have" if isinstance(error, LookupError) else first_line(error)
        raise damaged(path, otherwise, reason) from error


def stored_tensors(path: Path, content: object) -> dict[str, StoredTensor]:
    """Returns where the network's tensors lie, each storage once, provided that they fit into the file's size."""
    limit = path.stat().st_size
    left = MOST_VIEWS * limit
    result: dict[str, StoredTensor] = {}
    seen: set[StoredTensor] = set()
    for name, tensor in find_tensors(path, content).items():
        if isinstance(tensor, UnreadableTensor):
            raise CheckpointError(
                f"checkpoint {path} holds {name!r} as a sparse, quantized or empty ('meta') tensor, which cannot be "
                "read; save it as an ordinary tensor."
            )
        if not isinstance(tensor, StoredTensor):
            continue
        size = byte_count(tensor)
        if size and tensor in seen:
            continue
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


def addressed(path: Path, content: object, prefix: str | None) -> tuple[object, str | None]:
    """Returns the part of what was saved that a prefix ("state.model.") leads to, and what is left of the prefix."""
    parts = [part for part in (prefix or "").split(".") if part]
    # Names that begin with the prefix go before keys.
    with contextlib.suppress(CheckpointError):
        if not parts or any(name.startswith(f"{'.'.join(parts)}.") for name in find_tensors(path, content)):
            return content, prefix
    while parts and isinstance(content, Mapping) and isinstance(content.get(parts[0]), Mapping):
        content = content[parts.pop(0)]
    return content, ".".join(parts) or None


def other_weights(content: object, found: Collection[str]) -> list[str]:
    """Returns under which keys of what was saved there are tensors beside those that were found."""
    if not isinstance(content, Mapping) or any(name in content for name in found):
        return []
    keys = {key: _nested_tensors(value, _DEEPEST) for key, value in content.items() if isinstance(value, Mapping)}
    read = next((key for key in (*_NESTED_KEYS, *keys) if keys.get(key) is not None), None)
    return [str(key) for key, tensors in keys.items() if tensors is not None and key != read]


def extra_states(content: object) -> list[str]:
    """Returns the names of what layers keep beside their weights, of whatever kind, where the tensors are."""
    found = _nested_tensors(content, _DEEPEST) if isinstance(content, Mapping) else None
    return [name for name in found or () if isinstance(name, str) and is_extra_state(name)]


def find_tensors(path: Path, content: object) -> Mapping[str, Any]:
    """Returns the descriptions of the network's tensors in what was saved, which may be nested."""
    _check_is_plain("it", content)
    if not isinstance(content, Mapping):
        kind = "Tensor" if isinstance(content, StoredTensor | UnreadableTensor) else type(content).__name__
        raise CheckpointError(f"checkpoint {path} holds a {kind}, not a dictionary of tensors.")
    found = _nested_tensors(content, _DEEPEST)
    if found is None and "param_groups" in content:
        raise CheckpointError(
            f"checkpoint {path} is an optimizer's state (it has 'param_groups'), without the network's weights; give "
            "the file that holds those."
        )
    if found is None:
        raise CheckpointError(
            f"checkpoint {path} holds no tensors at its top level and none under the keys {list(_NESTED_KEYS)}; it has "
            f"{[str(key)[:80] for key in content if isinstance(key, str)][:20]}. Save the state dict alone."
        )
    found = {name: item for name, item in found.items() if not (isinstance(name, str) and is_extra_state(name))}
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
