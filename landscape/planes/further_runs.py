"""Runs that were collected separately, and networks, that join a run's landscapes: what ``also`` names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from collectors.files.places import AnyPath, with_slashes
from collectors.run_directory.directory import RunDirectory, find_run
from collectors.validation import check_path, wrong_type, wrong_value

from ..roles import check_name
from .runs import is_weights_file, names_of_folders

PLANES_OF = ("all", "first")


@dataclass(frozen=True)
class FurtherRuns:
    """Who joins the landscapes of a run.

    Attributes:
        own: the run's own name; "" where nobody joins it.
        runs: name to run directory.
        networks: name to the file of weights that belong to no run.
    """

    own: str = ""
    runs: dict[str, RunDirectory] = field(default_factory=dict)
    networks: dict[str, Path] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.runs or self.networks)

    def numbers(self, interval: Sequence[int], *, single: bool) -> dict[str, list[int]]:
        """Returns each run's present numbers: all where the interval is the ``single`` one, else those within it."""
        found = {}
        for name, run in self.runs.items():
            present = run.present(tuple(sorted(run.metadata.files)))
            found[name] = [number for number in present if single or interval[0] <= number <= interval[-1]]
            if not found[name]:
                between = "" if single else f" of {run.settings.unit}s {interval[0]} to {interval[-1]}"
                raise wrong_value(f"also[{name!r}]", f"a run with checkpoints{between}", str(run.path))
        return found


def find_further_runs(also: object, run: RunDirectory) -> FurtherRuns:
    """Opens the runs or files of weights at the paths ``also``, a list or by name; that of ``run`` only names it."""
    if not also:
        return FurtherRuns()
    if isinstance(also, str | os.PathLike) or not isinstance(also, Mapping | Sequence):
        raise wrong_type("also", "a list of run directories, or a dict from names to them", also)
    places = list(also.values()) if isinstance(also, Mapping) else list(also)
    keys = [check_name("a key of also", name) for name in also] if isinstance(also, Mapping) else [None] * len(places)
    files, runs = {}, {}  # type: dict[int, Path], dict[int, RunDirectory]
    for index, (key, place) in enumerate(zip(keys, places, strict=True)):
        label = f"also[{index if key is None else key!r}]"
        if not isinstance(place, RunDirectory | str | os.PathLike):
            raise wrong_type(label, "the path of a run directory, or of a file of weights", place)
        if not isinstance(place, RunDirectory) and is_weights_file(place):
            files[index] = check_path(label, place)
        else:
            runs[index] = place if isinstance(place, RunDirectory) else RunDirectory(find_run(place, label))
            _check_unit(label, runs[index], run)
    return _named(run, runs, files, keys)


def _named(
    run: RunDirectory, runs: Mapping[int, RunDirectory], files: Mapping[int, Path], keys: Sequence[str | None]
) -> FurtherRuns:
    same = [index for index, other in runs.items() if _folder(other.path) == _folder(run.path)]
    own = next((keys[index] for index in same if keys[index]), None)
    others = {index: other for index, other in runs.items() if index not in same}
    folders = [_folder(item.path) for item in (run, *others.values())]
    if len(set(folders)) < len(folders):
        raise wrong_value("also", "different run directories", [str(folder) for folder in folders])
    defaults = names_of_folders(folders)
    found = {keys[index] or name: runs[index] for index, name in zip(others, defaults[1:], strict=True)}
    networks = {keys[index] or path.stem: path for index, path in files.items()}
    first = own or defaults[0]
    names = [first, *(keys[index] or name for index, name in zip(others, defaults[1:], strict=True))]
    names += [keys[index] or path.stem for index, path in files.items()]
    if len(set(names)) < len(names):
        raise wrong_value("also", "a dict from different names to run directories and files of weights", names)
    return FurtherRuns(first, found, networks) if found or networks else FurtherRuns()


def _folder(path: AnyPath) -> PurePosixPath:
    return PurePosixPath(with_slashes(path.resolve() if isinstance(path, Path) else path))


def _check_unit(label: str, other: RunDirectory, run: RunDirectory) -> None:
    units = other.settings.unit, run.settings.unit
    if units[0] != units[1]:
        raise ValueError(
            f"{label} counts its checkpoints in {units[0]}s, but {run.path} in {units[1]}s, so their numbers cannot "
            "stand in one picture. Give pca_plane both runs as lists of files, which are only counted."
        )


def as_also(items: Sequence[str] | None) -> Any:
    """Returns ``also`` from texts such as ``run_b`` and ``adam=run_b``, as a command line has them."""
    named: dict[str, str] = {}
    for item in items or ():
        name, separator, path = item.partition("=")
        # Lightning calls a file epoch=3-step=400.ckpt.
        if not separator or "/" in with_slashes(name) or Path(item).exists():
            place = PurePosixPath(with_slashes(item))
            name, path = place.stem if is_weights_file(item) else place.name, item
        if name in named:
            raise wrong_value("also", "NAME=RUN_DIRECTORY with different names", [named[name], path])
        named[name] = path
    return named
