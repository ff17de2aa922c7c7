"""Keras' files of weights, which are read into a network; no code from them ever runs."""

from __future__ import annotations

import contextlib
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.file_kinds import check_file_kind, first_line
from ..validation import wrong_type
from . import tensorflow_file

KERAS_ENDINGS = (".weights.h5", ".keras", tensorflow_file.ENDING)
"""What the names of Keras' files end with that hold nothing else."""
_LEGACY_ENDINGS = (".h5", ".hdf5")
_WEIGHTS = "model.weights.h5"


def is_keras_file(path: Path) -> bool:
    return path.name.lower().endswith((*KERAS_ENDINGS, *_LEGACY_ENDINGS))


def check_keras_network(network: object) -> None:
    """Raises a TypeError where Keras' files cannot be read into an object."""
    from ..networks.readers import framework_of

    if network is not None and framework_of(network) != "keras":
        raise wrong_type(
            "network", "a built keras.Model, into which Keras reads its files of weights, or None", network
        )


def read_keras_file(path: Path, network: Any) -> dict[str, NDArray[Any]]:
    """Returns a file's weights under the names that they have in a network, which keeps its own."""
    is_of_tensorflow = path.name.lower().endswith(tensorflow_file.ENDING)
    if not is_of_tensorflow:
        _check_contents(path)
    if network is None:
        raise CheckpointError(
            f"checkpoint {path} holds weights of Keras, which are read into a network. Give import_checkpoints a built "
            "keras.Model (network=model), or `landscape convert --from checkpoints` a callback_fn that returns one "
            "(--function my_training:callback_fn)."
        )
    from ..networks import keras_network

    kept = [(variable, keras_network.to_array(variable)) for variable in network.variables]
    try:
        with warnings.catch_warnings():
            # An optimizer's variables, which are no weights.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer", UserWarning)
            if is_of_tensorflow:
                tensorflow_file.load_weights(path, network)
            else:
                network.load_weights(os.fspath(path))
        return keras_network.read(network)
    except CheckpointError:
        raise
    except Exception as error:
        # Keras reports what does not fit, and what is damaged, by nearly every kind of exception.
        raise CheckpointError(
            f"checkpoint {path} cannot be read into the network {type(network).__name__} that was given "
            f"({first_line(error)}). Give the network that was trained; if it is that one, copy the file again."
        ) from error
    finally:
        for variable, values in kept:
            variable.assign(values)


def _check_contents(path: Path) -> None:
    """Raises a CheckpointError where a file is of another kind, claims more bytes than it has, or names other files."""
    import h5py

    ending = ".keras" if path.name.lower().endswith(".keras") else ".h5"
    check_file_kind(path, "ZIP" if ending == ".keras" else "HDF5")
    size = path.stat().st_size
    try:
        with contextlib.ExitStack() as opened:
            source: Any = path
            if ending == ".keras":
                archive = opened.enter_context(zipfile.ZipFile(path))
                if sum(member.file_size for member in archive.infolist()) > size:
                    raise ValueError("its members claim more bytes than the file has")
                source = opened.enter_context(archive.open(_WEIGHTS))
            file = opened.enter_context(h5py.File(source, "r"))
            if "summary-landscape" in str(file.attrs.get("format")):
                raise CheckpointError(
                    f"checkpoint {path} holds no weights, but what this program has measured; give it to what reads "
                    "landscapes, such as `landscape plot`, and here a file of weights."
                )
            for name, dataset in _datasets(file):
                # Compressed values, values in other files and those that are not there may be of any size.
                if dataset.external or dataset.is_virtual or dataset.id.get_storage_size() < dataset.nbytes:
                    raise ValueError(f"{name!r} claims {dataset.nbytes} bytes, which are not in the file")
    except CheckpointError:
        raise
    except Exception as error:  # the libraries report damage by nearly every kind of exception
        raise CheckpointError(
            f"checkpoint {path} is damaged or no file of Keras' weights ({first_line(error)}); copy it again, or save "
            "the network's weights again with Keras."
        ) from error


def _datasets(group: Any) -> Iterator[tuple[str, Any]]:
    import h5py

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name!r} is a link to another place")
        member = group[name]
        if isinstance(member, h5py.Group):
            yield from _datasets(member)
        elif member.shape is not None:
            yield member.name, member
