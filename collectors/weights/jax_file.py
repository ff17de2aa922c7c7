"""What JAX' users save weights in: Flax's msgpack, Orbax' folders, NumPy's archives; no code from them ever runs."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.file_kinds import ENOUGH_BYTES, check_file_kind, check_kind, damaged, reporting_damage
from ..networks.weight_space import some_names

MSGPACK, NPZ = ".msgpack", ".npz"
ORBAX = "_METADATA"
"""The file by which a folder is Orbax'."""
_OF_MANAGER = "default"
# Its arrays are compressed, the best by about as much.
_LARGEST_RATIO = 1024
_PARAMETERS = "params"
_OPTIMIZER = "opt_state"

NamedArrays = tuple[dict[str, NDArray[Any]], Mapping[str, Any]]
"""Arrays by their path joined by dots, without "params" before it; and all that a checkpoint holds beside them."""


def read_msgpack(path: Path) -> NamedArrays:
    """Returns what ``flax.serialization.to_bytes`` wrote; of a ``TrainState`` without the optimizer's state."""
    try:
        from flax.serialization import msgpack_restore
    except ImportError as error:
        raise _needs(path, "Flax", "flax") from error
    content = path.read_bytes()
    check_kind(path, content[:ENOUGH_BYTES])
    with reporting_damage(path, "Flax"):
        restored = msgpack_restore(content)
    return _named(path, "Flax", restored)


def find_orbax(folder: Path) -> Path | None:
    """Returns where a folder of Orbax, or a step of its CheckpointManager, has its arrays; None for any other."""
    return next((place for place in (folder, folder / _OF_MANAGER) if (place / ORBAX).is_file()), None)


def read_orbax(folder: Path) -> NamedArrays:
    """Returns what a folder of Orbax' PyTree checkpoints holds, from any number of devices."""
    try:
        import jax

        orbax: Any = import_module("orbax.checkpoint")
    except ImportError as error:
        raise _needs(folder, "Orbax", "orbax-checkpoint") from error
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    with reporting_damage(folder, "Orbax"), orbax.PyTreeCheckpointer() as reader:
        tree = reader.metadata(folder.absolute()).item_metadata.tree
        claimed = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape"))
        if claimed > size * _LARGEST_RATIO:
            raise ValueError(f"its arrays claim {claimed} elements, more than {size} bytes can hold")
        as_arrays = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), tree)
        restored = reader.restore(folder.absolute(), restore_args=as_arrays)
    return _named(folder, "Orbax", restored)


def read_npz(path: Path) -> NamedArrays:
    """Returns the arrays of an archive that ``numpy.savez`` wrote; in their names a slash counts as a dot."""
    check_file_kind(path, "NumPy", "ZIP")
    with reporting_damage(path, "NumPy"):
        with zipfile.ZipFile(path) as archive:
            # Compressed arrays may be of any size; what is stored as it is has as many bytes as it claims.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("its arrays are compressed: load it, and save it with numpy.savez")
        with np.load(path, allow_pickle=False) as arrays:
            dotted = {name.replace("/", "."): arrays[name] for name in arrays.files}
    if lost := [name for name, values in dotted.items() if values.dtype.kind == "V"]:
        raise CheckpointError(
            f"checkpoint {path} does not say the type of {some_names(lost)}: archives of NumPy lose such types as "
            "bfloat16. Save these arrays as float32, or all of them in a safetensors file."
        )
    return {name.removeprefix(f"{_PARAMETERS}."): values for name, values in dotted.items()}, {}


def _named(path: Path, writer: str, restored: object) -> NamedArrays:
    if not isinstance(restored, Mapping):
        raise damaged(path, f"no checkpoint of {writer}", f"it holds {type(restored).__name__}, not a dictionary")
    if _PARAMETERS in restored:
        # The steps of a TrainState are an array once they were counted in compiled code.
        restored = {key: value.item() if _is_number(value) else value for key, value in restored.items()}
    trees = {key: value for key, value in restored.items() if key != _OPTIMIZER}
    # A TrainState may hold all collections under "params".
    inner = trees.get(_PARAMETERS)
    if isinstance(inner, Mapping) and isinstance(inner.get(_PARAMETERS), Mapping):
        trees |= inner
    return dict(_arrays(trees)), restored


def _is_number(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype.kind in "iu"


def _arrays(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, NDArray[Any]]]:
    for key, value in tree.items():
        place = path if not path and key == _PARAMETERS else (*path, str(key))
        if isinstance(value, Mapping):
            yield from _arrays(value, place)
        elif isinstance(value, list | tuple):
            yield from _arrays({str(index): item for index, item in enumerate(value)}, place)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield ".".join(place), value


def _needs(path: Path, package: str, extra: str) -> ImportError:
    return ImportError(f"checkpoint {path} is of {package}, which is needed to read it: pip install {extra}.")
