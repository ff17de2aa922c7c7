"""Checkpoint files: one saved by hand, loaded, found, and put into a network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..files.local_files import naming
from ..files.places import check_can_be_directory
from ..networks.readers import read_network
from ..networks.weight_space import State, is_extra_state
from ..validation import check_choice, check_instance, check_path
from ..weights.wrapped_names import COUNT_OF_AVERAGES
from .archive import Archive, TrainingState, read_archive, storable_extra_states, write_archive
from .config import check_info_value
from .encryption import ENCRYPTION_MODES, check_encryption, check_key

SUFFIX = ".safetensors"
_PLACE = rf"-(\d+)_(\d+)(?:_breakpoint)?{re.escape(SUFFIX)}"
# The last group of numbers counts: a file with the prefix CKP-1 does not have the prefix CKP.
CHECKPOINT_NAME = re.compile(f"(.+){_PLACE}", re.DOTALL)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint file holds.

    Attributes:
        path: the file.
        weights: parameters and buffers by name, each storage once.
        info: the values that ``CheckpointConfig.append_info`` asked for.
        training_state: where the training was and the state of what took part in it; None where the file holds
            weights alone.
        extra_states: what layers of a PyTorch network kept beside their weights (``get_extra_state``), by the names
            of PyTorch's state dicts.
    """

    path: Path
    weights: dict[str, NDArray[Any]] = field(repr=False)
    info: dict[str, Any]
    training_state: TrainingState | None = field(repr=False)
    extra_states: dict[str, Any] = field(default_factory=dict, repr=False)

    def load_into(self, network: Any) -> None:
        """Puts weights and extra states into a PyTorch network, which keeps its devices and element types.

        Raises:
            CheckpointError: names or shapes differ; all are listed, and the network stays as it was.
        """
        load_weights(network, self.weights, self.extra_states, str(self.path))


def save_checkpoint(
    network: object,
    path: str | os.PathLike[str],
    append_dict: Mapping[str, Any] | None = None,
    enc_key: bytes | None = None,
    enc_mode: str = "AES-GCM",
) -> Path:
    """Saves a network's weights as one safetensors file, which ``load_checkpoint`` reads.

    The file appears whole, or not at all; one that is there already is replaced. The state of a training, from which
    ``Model.train`` can go on, is saved by ``ModelCheckpoint``.

    Args:
        network: a network of any supported framework.
        path: the file; ``.safetensors`` is added where its name ends otherwise. Missing folders are created.
        append_dict: what ``load_checkpoint(...).info`` will hold: str to int, float, bool, str, tensor or array.
        enc_key: the key to encrypt with: 16, 24 or 32 bytes. None does not encrypt.
        enc_mode: "AES-GCM" or "AES-CBC".

    Returns:
        The file's path.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        OSError: the file cannot be written; nothing is left behind, and a file that was there stays.
        ImportError: there is a key, and the package ``cryptography`` is missing.
    """
    file = check_path("path", path)
    if file.suffix != SUFFIX:
        file = file.with_name(file.name + SUFFIX)
    check_instance("append_dict", append_dict, (Mapping, type(None)), "a dict or None")
    info = {key: check_info_value("append_dict", key, value) for key, value in (append_dict or {}).items()}
    check_encryption(enc_key, enc_mode)
    archive = Archive.pack(read_network(network), info, None, storable_extra_states(network))
    make_directory(file.parent)
    write_archive(file, archive, enc_key, enc_mode)
    return file


def load_checkpoint(
    path: str | os.PathLike[str], dec_key: bytes | None = None, dec_mode: str = "AES-GCM"
) -> Checkpoint:
    """Returns what a checkpoint file holds; no code from a file ever runs.

    Args:
        path: a file that ``ModelCheckpoint`` or ``save_checkpoint`` wrote, where it is missing with ``.safetensors``
            behind its name; of any other safetensors file, the weights are read.
        dec_key: the key that the file was encrypted with; None for a file that is not encrypted.
        dec_mode: the mode it was encrypted with, "AES-GCM" or "AES-CBC".

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the key is missing, wrong or of a wrong length, the mode is another one, or there is a key for
            a file that is not encrypted.
        CheckpointError: the file is missing, truncated, changed, or of a later version of this library.
        ImportError: the file is encrypted, and the package ``cryptography`` is missing.
    """
    file = check_path("path", path)
    if not file.exists() and file.with_name(file.name + SUFFIX).exists():
        file = file.with_name(file.name + SUFFIX)
    if dec_key is not None:
        check_key("dec_key", dec_key)
    check_choice("dec_mode", dec_mode, ENCRYPTION_MODES)
    return Checkpoint(file, *read_archive(file, dec_key, dec_mode).unpack(f"checkpoint {file}"))


def latest_checkpoint(directory: str | os.PathLike[str], prefix: str = "CKP") -> Path | None:
    """Returns the latest checkpoint of a directory, or None: the last step of the run that was started last.

    Runs of a prefix are ``prefix``, ``prefix_1``, ``prefix_2`` and so on; within a run, epoch and step of the
    file's name decide.

    Args:
        directory: where ``ModelCheckpoint`` writes.
        prefix: its prefix.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the directory is not a usable path.
    """
    folder = check_path("directory", directory)
    check_instance("prefix", prefix, str, "a str")
    if not folder.is_dir():
        return None
    runs = re.compile(rf"{re.escape(prefix)}(?:_(\d+))?{_PLACE}")
    matches = {file: match for file in folder.iterdir() if (match := runs.fullmatch(file.name))}
    # Run, epoch and step; the first run has no number.
    places = {file: tuple(int(number or 0) for number in match.groups()) for file, match in matches.items()}
    return max(places, key=lambda file: (places[file], file.name), default=None)


def prefix_of(name: str) -> str | None:
    match = CHECKPOINT_NAME.fullmatch(name)
    return match and match[1]


def load_weights(network: Any, weights: State, extra_states: Mapping[str, Any], where: str) -> None:
    """Puts weights and layers' extra states into a PyTorch network, or none of them where names or shapes differ."""
    import torch

    from ..networks.torch_network import named_tensors, set_extra_states, to_tensor, unwrap, weight_space

    # Another program's file has them as tensors among the weights.
    more = {name: to_tensor(array) for name, array in weights.items() if is_extra_state(name)}
    shapes = {name: array.shape for name, array in weights.items() if not is_extra_state(name)}
    space = weight_space(network)
    # Of an average's weights, a plain network takes all but how many were averaged.
    if all(tensor.name != COUNT_OF_AVERAGES for tensor in space.tensors):
        shapes.pop(COUNT_OF_AVERAGES, None)
    names = space.check_state(where, shapes)
    with torch.no_grad():
        for info, tensor in named_tensors(network):
            tensor.copy_(to_tensor(weights[names[info.name]]))
    set_extra_states(unwrap(network), {**more, **extra_states}, where)


def check_directory(value: Any) -> Path:
    """Returns a directory's real path; nothing is created."""
    folder = Path(os.path.realpath(check_path("directory", value)))
    check_can_be_directory("directory", folder, writable=True)
    return folder


def make_directory(folder: Path) -> None:
    """Creates a directory, readable for the user alone, unless it is there."""
    with naming(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_directory(folder)
