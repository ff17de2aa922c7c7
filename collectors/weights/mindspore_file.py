"""MindSpore's ``.ckpt`` files, read with MindSpore; no code from a file ever runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError, reporting
from ..files.file_kinds import check_file_kind, reporting_damage
from ..files.local_files import TemporaryFolder
from ..networks.weight_space import WeightSpace
from .safetensors_file import CheckpointFile, file_sha256, write_checkpoint

# What MindSpore's optimizers, loss scaling and training loops keep beside the weights.
_COUNTERS = re.compile(
    r"(.*\.)?(global_step|learning_rate|momentum|beta[12]_power|scale_sense|loss_scale|current_iterator_step"
    r"|last_overflow_iterator_step|epoch_num|step_num)"
)
# Its optimizers' prefixes of the names of what they move.
_SLOTS = re.compile(
    r"(moments?|moment[12]|accum|accum_update|adam_[mv]|lamb_[mv]|ax_|exp_avg|linear|mean_grad|mean_square|prev|stat"
    r"|step_size|vhat)"
)


class MindSporeCheckpoint(CheckpointFile):
    """A ``.ckpt`` file, read through a temporary safetensors file, because MindSpore reads it only as a whole."""

    def __init__(self, path: Path, space: WeightSpace | None = None, label: str | None = None) -> None:
        state = load_ckpt(path)
        if space is not None:
            # What else the file holds, such as an optimizer's moments, is left out.
            state = _of_network(state, space)
        self._folder = TemporaryFolder("landscape-ckpt-")
        copy = self._folder.path / "state.safetensors"
        write_checkpoint(copy, state)
        super().__init__(copy, label or str(path))
        self._original = path

    def sha256(self) -> str:
        """Returns the SHA-256 of the ``.ckpt`` file, computed once."""
        if self._digest is None:
            self._digest = file_sha256(self._original)
        return self._digest

    def portable(self) -> None:
        """Returns None: other processes would need MindSpore to read the file, and make a copy of it each."""


def load_ckpt(path: Path) -> dict[str, NDArray[Any]]:
    check_file_kind(path, "MindSpore")
    try:
        import mindspore
    except ImportError as error:
        raise ImportError(
            f"checkpoint {path} is MindSpore's, which is needed to read it; install it with "
            "pip install 'summary-landscape[mindspore]'."
        ) from error
    from ..networks.mindspore_network import to_array

    with reporting_damage(path, "MindSpore"):
        return {name: to_array(tensor) for name, tensor in mindspore.load_checkpoint(str(path)).items()}


def without_optimizer(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns what belongs to the network, judged by its names: optimizers prefix the names of what they move."""

    def is_slot(name: str) -> bool:
        prefix, _, rest = name.partition(".")
        return bool(_SLOTS.fullmatch(prefix)) and rest in state and state[rest].shape == state[name].shape

    return {name: array for name, array in state.items() if not _COUNTERS.fullmatch(name) and not is_slot(name)}


def is_mindspore_file(path: Path) -> bool:
    """Returns whether a ``.ckpt`` file is MindSpore's rather than PyTorch's (a zip archive or a pickle)."""
    with reporting(f"checkpoint {path} cannot be opened", kind=CheckpointError), path.open("rb") as file:
        start = file.read(2)
    return start != b"PK" and not start.startswith(b"\x80")


def _of_network(state: Mapping[str, NDArray[Any]], space: WeightSpace) -> dict[str, NDArray[Any]]:
    """Returns the network's own tensors; their names may carry the prefix of a cell that was wrapped around it."""
    known = {name for tensor in space.tensors for name in (tensor.name, *tensor.aliases)}
    first = space.tensors[0].name if space.tensors else ""
    prefixes = ["", *sorted({name.removesuffix(first) for name in state if name.endswith(f".{first}")})]

    def found(prefix: str) -> dict[str, NDArray[Any]]:
        return {
            name.removeprefix(prefix): array
            for name, array in state.items()
            if name.startswith(prefix) and name.removeprefix(prefix) in known
        }

    return max((found(prefix) for prefix in prefixes), key=len)
