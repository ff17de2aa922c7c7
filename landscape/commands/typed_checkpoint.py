"""A checkpoint as it is typed on the command line: a file, or one of a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.files.places import is_url, with_slashes
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory, find_run


@dataclass(frozen=True)
class TypedCheckpoint:
    name: str  # for pictures; "" where none was given
    place: str  # a file, or a run directory
    number: int | None = None  # of the run's checkpoint; None takes the last one

    @classmethod
    def read(cls, text: str) -> TypedCheckpoint:
        """Returns what is typed: a file, RUN_DIR or RUN_DIR@NUMBER, with NAME= in front or without."""
        name, rest = "", text
        if not Path(text).exists() and "=" in with_slashes(text.partition("://")[0]).partition("/")[0]:
            name, _, rest = text.partition("=")
            if not name or not rest:
                raise ValueError(f"CHECKPOINTS must be a file, RUN_DIR@NUMBER or NAME=FILE, but got {text!r}.")
        place, _, number = rest.rpartition("@")
        if place and number.isdecimal() and not Path(rest).exists():
            return cls(name, place, int(number))
        if place and not Path(rest).exists() and (Path(place) / CHECKPOINT_FOLDER).is_dir():
            raise ValueError(
                f"CHECKPOINTS must be RUN_DIR@NUMBER, whose number is an epoch or a step such as {place}@20, or "
                f"RUN_DIR alone for its last checkpoint, but got {rest!r}."
            )
        return cls(name, rest)

    @property
    def is_run(self) -> bool:
        """Whether it is a run directory, or a checkpoint of one."""
        return self.number is not None or is_url(self.place) or (Path(self.place) / CHECKPOINT_FOLDER).is_dir()

    def weights(self, space: WeightSpace) -> Any:
        """Returns what Python's functions take."""
        if not self.is_run:
            return self.place
        run = self.run()
        number = max(run.metadata.files) if self.number is None else self.number
        return run.checkpoint(number, space)

    def run(self) -> RunDirectory:
        """Returns the run directory, of which all checkpoints are meant."""
        return RunDirectory(find_run(self.place))

    @property
    def label(self) -> str:
        """What pictures call it where several must be told apart."""
        number = "" if self.number is None else f"@{self.number}"
        return self.name or f"{Path(self.place).name if self.is_run else Path(self.place).stem}{number}"


def named_weights(label: str, found: Sequence[TypedCheckpoint], space: WeightSpace) -> dict[str, Any] | list[Any]:
    """Returns weights by their names; a list where nobody named them, because files have names of their own."""
    if not any(item.name or item.is_run for item in found):
        return [item.place for item in found]
    named = {item.label: item.weights(space) for item in found}
    if len(named) < len(found):
        raise ValueError(
            f"{label} must have different names, but got {', '.join(item.label for item in found)}. Put NAME= in "
            "front of each."
        )
    return named
