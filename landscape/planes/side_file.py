"""Side files: named arrays and JSON in a safetensors file, such as a plane beside its landscape; nothing is pickled."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from collectors.errors import FileWriteError
from collectors.files.local_files import remove_stale_temporaries
from collectors.files.places import AnyPath, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import State
from collectors.validation import check_bool
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint

from ..errors import DAMAGES, LandscapeWriteError, PlaneError
from ..replacing import already_there, check_replaceable_tensors

T = TypeVar("T")

_REMEDY = "then run again: it continues from the file"


@dataclass(frozen=True)
class SideFile:
    word: str  # what it is, as texts call it
    contents: str  # what it holds, as texts call it
    format: str  # its entry ``format``
    written_by: str  # where a user gets such a file
    made_again: str  # how to make it anew
    version: int = 1  # the ``format_version`` that is written and read
    older: Mapping[str, str] = field(default_factory=dict)  # by an entry, what files without a format hold

    @property
    def header(self) -> dict[str, str]:
        return {"format": self.format, "format_version": str(self.version)}

    def contents_of(
        self, groups: Mapping[str, State], entries: Mapping[str, Any]
    ) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Returns the tensors and the metadata of a file: arrays as "group/name", entries as texts or JSON."""
        tensors = {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
        texts = {
            name: value if isinstance(value, str) else json.dumps(value, default=lambda array: array.tolist())
            for name, value in entries.items()
        }
        return tensors, {**self.header, **texts}

    def check_replaceable(self, path: AnyPath) -> None:
        check_replaceable_tensors(path, self.word, self.format)

    def write(
        self, path: AnyPath, groups: Mapping[str, State], entries: Mapping[str, Any], remedy: str = _REMEDY
    ) -> None:
        """Writes a file, on this machine or behind a URL; never half a file."""
        self.check_replaceable(path)
        tensors, metadata = self.contents_of(groups, entries)
        try:
            if isinstance(path, RemotePath):
                with tempfile.TemporaryDirectory() as folder:
                    write_checkpoint(Path(folder) / path.name, tensors, metadata)
                    path.upload(Path(folder) / path.name)
            else:
                # Writers that were killed left temporary files, each as large as a model.
                remove_stale_temporaries(path.parent, re.compile(re.escape(path.name)))
                write_checkpoint(path, tensors, metadata)
        except (OSError, FileWriteError) as error:
            raise LandscapeWriteError(
                f"{self.contents} cannot be written to {path}: {error}. Free some space, {remedy}."
            ) from error

    def read(self, path: AnyPath, make: Callable[[CheckpointFile], T]) -> T:
        file = CheckpointFile(path)
        if file.metadata.get("format") != self.format:
            contents = next((what for entry, what in self.older.items() if entry in file.metadata), f"no {self.word}")
            raise PlaneError(f"{path} holds {contents}. Give {self.written_by}.")
        if (version := file.metadata.get("format_version")) != str(self.version):
            raise PlaneError(
                f"{path} has format_version {version}, this program reads {self.version}. Install a newer "
                f"summary-landscape, or {self.made_again}."
            )
        try:
            return make(file)
        except DAMAGES as error:
            raise PlaneError(
                f"{path} holds no whole {self.word} ({type(error).__name__}: {error}); copy it again from where it "
                f"came, or {self.made_again}."
            ) from error


def place_to_save(path: str | os.PathLike[str], *, overwrite: bool) -> AnyPath:
    """Returns where a user wants a file, which replaces another one only with ``overwrite``."""
    target = check_directory("path", path)
    check_bool("overwrite", overwrite)
    if not isinstance(target, RemotePath):
        check_can_be_file("path", target)
    if target.exists() and not overwrite:
        raise already_there(target)
    return target
