"""A checkpoint file: safetensors with weights, tensors of all else (``checkpoint/...``), and JSON in the metadata."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.system import sync_directory
from ..networks.readers import framework_of
from ..networks.weight_space import State, canonical_name, extra_states_left_out, numpy_dtype, state_sha256
from ..weights.safetensors_file import RESERVED_PREFIX, STATE_FORMAT, STORABLE_DTYPES, CheckpointFile, write_checkpoint
from .encryption import decrypt, encrypt

_VERSION = "1"
_SEALED = RESERVED_PREFIX + "encrypted"
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class TrainingState:
    """Where a training was and all that it needs, beside the weights, to go on as if nothing had happened."""

    epoch: int  # the number (the first is 1) of the epoch that the training was in
    epoch_steps: int  # how many batches of that epoch were done
    epoch_complete: bool  # whether the epoch's evaluation and end hooks were done, too
    step: int  # how many batches of all epochs were done
    batch_num: int | None  # how many batches an epoch has, None where that was not known
    optimizer: dict[str, Any]  # its class's name and its state dict
    scaler: dict[str, Any]
    gradients: dict[str, Any]  # the gradients that no optimizer step had used, and their counters; mostly empty
    loss_fn: dict[str, Any]
    callbacks: list[Any]  # of each with a state: class name, state dict, whether it is needed
    random: dict[str, Any]
    epoch_random: dict[str, Any]  # their states when the epoch's first batch was about to be drawn
    net_outputs: Any = None  # the last step's, None before the first; hooks of an epoch's end may ask for it
    network: dict[str, Any] | None = None  # of the network that trained, where the checkpoint's weights are another's

    @property
    def epochs_done(self) -> int:
        return self.epoch if self.epoch_complete else self.epoch - 1

    @classmethod
    def from_tree(cls, tree: Any) -> TrainingState:
        kinds = {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(cls, localns={}).items()}
        given = tree if isinstance(tree, dict) else {}
        wrong = [
            name
            for name, kind in kinds.items()
            if name not in given or (kind in (int, bool, dict, list) and type(given[name]) is not kind)
        ] or sorted(given.keys() - kinds.keys())
        if wrong:
            raise ValueError(f"of the training state, {wrong} are missing, wrong or unknown")
        return cls(**given)


@dataclass(frozen=True)
class Archive:
    """A checkpoint's content: copies, which later training steps do not change; what is no array is JSON."""

    arrays: dict[str, NDArray[Any]]
    contents: str

    @classmethod
    def pack(
        cls,
        weights: State,
        info: Mapping[str, Any],
        state: TrainingState | None,
        extra_states: Mapping[str, Any] | None = None,
    ) -> Archive:
        """Returns an archive of weights, the user's values and, where there are some, training and extra states."""
        reserved = [name for name in weights if name.startswith(RESERVED_PREFIX)]
        if reserved:
            raise ValueError(f"network's tensors {reserved} must not begin with {RESERVED_PREFIX!r}; rename them.")
        arrays = dict(weights)
        contents = {
            "info": encode(dict(info), f"{RESERVED_PREFIX}info", arrays),
            "training": None if state is None else encode(vars(state), f"{RESERVED_PREFIX}training", arrays),
        }
        if extra_states:
            contents["extra_states"] = encode(extra_states, f"{RESERVED_PREFIX}extra_states", arrays)
        return cls(arrays, json.dumps(contents))

    def unpack(
        self, where: str
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any], TrainingState | None, dict[str, Any]]:
        """Returns weights, the user's values, the training state and the extra states."""
        weights = {name: array for name, array in self.arrays.items() if not name.startswith(RESERVED_PREFIX)}
        try:
            contents = json.loads(self.contents)
            info, training = (decode(contents[part], self.arrays) for part in ("info", "training"))
            state = None if training is None else TrainingState.from_tree(training)
            extra_states = dict(decode(contents.get("extra_states", {"dict": []}), self.arrays))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{where} was not written by this version of this library, or was changed: its metadata cannot be read "
                f"({error!r})."
            ) from error
        return weights, info, state, extra_states


def storable_extra_states(network: object) -> dict[str, Any]:
    """Returns what layers of a PyTorch network keep beside their weights; warns of what no checkpoint can hold."""
    if framework_of(network) != "torch":
        return {}
    from ..networks.torch_network import extra_states, unwrap

    found = {}
    for name, state in extra_states(cast(Any, unwrap(cast(Any, network)))).items():
        try:
            encode(state, name, {})
        except TypeError as error:
            text = f"network holds more than a checkpoint can; {extra_states_left_out([name])} {error}"
            warnings.warn(text, UserWarning, stacklevel=2)
        else:
            found[name] = state
    return found


def write_archive(path: Path, archive: Archive, key: bytes | None, mode: str) -> None:
    """Writes an archive; when this returns, the file is whole and survives a power cut."""
    arrays, metadata = archive.arrays, {"contents": archive.contents}
    if key is not None:
        sealed = encrypt(_to_bytes(archive), key, mode)
        # An encrypted checkpoint is a safetensors file, too, with one tensor of bytes.
        arrays, metadata = {_SEALED: np.frombuffer(sealed, np.uint8)}, {"encryption": mode}
    metadata |= {"format": STATE_FORMAT, "format_version": _VERSION}
    metadata["sha256"] = _digest(arrays, metadata)
    write_checkpoint(path, arrays, metadata)
    sync_directory(path.parent)


def read_archive(path: Path, key: bytes | None, mode: str) -> Archive:
    """Returns what a file holds; for a safetensors file that this library did not write, the weights."""
    file = CheckpointFile(path)
    arrays = {name: file.read(name) for name in file.shapes}
    metadata = dict(file.metadata)
    encryption = metadata.get("encryption")
    if encryption is None and key is not None:
        # Otherwise an attacker who can replace a file could pass plain content off as authenticated content.
        raise ValueError(f"dec_key must be None, because {path} is not encrypted.")
    # One of our files with damaged metadata must not pass for a foreign file.
    named = not metadata.keys().isdisjoint(("sha256", "contents", "encryption"))
    if metadata.get("format") != STATE_FORMAT and not named and not any("sha256" in text for text in metadata.values()):
        weights = {canonical_name(name): array for name, array in arrays.items()}
        return Archive(weights, '{"info": {"dict": []}, "training": null}')
    if metadata.get("format_version") != _VERSION:
        raise CheckpointError(
            f"checkpoint {path} has the format version {metadata.get('format_version')}, but this library reads "
            f"{_VERSION}; update it."
        )
    if metadata.pop("sha256", None) != _digest(arrays, metadata):
        raise CheckpointError(
            f"checkpoint {path} was changed after it was written (its SHA-256 differs); copy it again."
        )
    if encryption is None:
        return Archive(arrays, metadata.get("contents", ""))
    if key is None:
        raise ValueError(
            f"dec_key must be given, because {path} is encrypted ({encryption}): load_checkpoint(path, dec_key)."
        )
    if encryption != mode:
        raise ValueError(f"dec_mode must be {encryption!r}, with which {path} was encrypted, but got {mode!r}.")
    return _from_bytes(decrypt(arrays[_SEALED].tobytes(), key, mode, f"checkpoint {path}"))


def encode(tree: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Returns a tree as what JSON can hold; its tensors and arrays are copied into ``arrays``."""
    if tree is None or type(tree) in _PLAIN:
        return tree
    if isinstance(tree, np.generic) and isinstance(tree.item(), _PLAIN):
        return tree.item()
    if isinstance(tree, _PLAIN):
        return next(kind for kind in _PLAIN if isinstance(tree, kind))(tree)
    if isinstance(tree, bytes):
        return {"bytes": tree.hex()}
    if isinstance(tree, list | tuple):
        items = [encode(item, f"{name}/{index}", arrays) for index, item in enumerate(tree)]
        return items if isinstance(tree, list) else {"tuple": items}
    if isinstance(tree, Mapping):
        pairs = [[encode(key, name, arrays), encode(item, f"{name}/{key}", arrays)] for key, item in tree.items()]
        return {"counter" if isinstance(tree, Counter) else "dict": pairs}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tree, torch.Tensor):
        from ..networks.torch_network import to_array

        return {"tensor": _add(to_array(tree), name, arrays)}
    if isinstance(tree, np.ndarray):
        return {"array": _add(tree.copy(), name, arrays)}
    raise TypeError(
        f"{name} must be made of None, bool, int, float, str, bytes, tensors, arrays, dicts, lists and tuples, because "
        f"checkpoints hold no pickle, but it is {type(tree).__name__}."
    )


def decode(encoded: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if encoded is None or isinstance(encoded, _PLAIN):
        return encoded
    if isinstance(encoded, list):
        return [decode(item, arrays) for item in encoded]
    ((kind, content),) = encoded.items()
    if kind == "tuple":
        return tuple(decode(item, arrays) for item in content)
    if kind in ("dict", "counter"):
        pairs = {decode(key, arrays): decode(item, arrays) for key, item in content}
        return Counter(pairs) if kind == "counter" else pairs
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "array":
        return arrays[content].copy()
    if kind == "tensor":
        from ..networks.torch_network import to_tensor

        return to_tensor(arrays[content])
    raise ValueError(f"it has an item of the unknown kind {kind!r}")


def _digest(arrays: State, metadata: Mapping[str, str]) -> str:
    text = json.dumps([state_sha256(arrays), sorted(metadata.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _to_bytes(archive: Archive) -> bytes:
    index = [[name, array.dtype.name, array.shape] for name, array in archive.arrays.items()]
    header = json.dumps({"contents": archive.contents, "arrays": index}).encode()
    blocks = (np.ascontiguousarray(array).tobytes() for array in archive.arrays.values())
    return b"".join((len(header).to_bytes(8, "little"), header, *blocks))


def _from_bytes(data: bytes) -> Archive:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    arrays = {}
    for name, dtype_name, shape in header["arrays"]:
        dtype = numpy_dtype(dtype_name)
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, dtype, count, start).reshape(shape).copy()
        start += count * dtype.itemsize
    return Archive(arrays, header["contents"])


def _add(array: NDArray[Any], name: str, arrays: dict[str, NDArray[Any]]) -> str:
    if array.dtype.name not in STORABLE_DTYPES:
        raise TypeError(f"{name} has elements of type {array.dtype.name}, which a safetensors file cannot hold.")
    # The keys 1 and "1" of a dict would share a name.
    while name in arrays:
        name += "'"
    arrays[name] = array
    return name
