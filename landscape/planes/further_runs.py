"""Runs that were collected separately, and networks, that join a run's landscapes: what ``also`` names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from collectors.files.places import AnyPath, check_directory, with_slashes
from collectors.run_directory.directory import RunDirectory, find_run
from collectors.validation import check_instance, wrong_type, wrong_value

from ..roles import check_name
from .networks import Network, find_named, is_weights_file, names_of_folders, networks_in


@dataclass(frozen=True)
class FurtherRuns:
    joined: str = ""  # the name of the run that they join; "" where nobody does
    runs: Mapping[str, RunDirectory] = field(default_factory=dict)  # name to run directory
    files: Mapping[str, str] = field(default_factory=dict)  # name to the file of weights that belong to no run

    def __bool__(self) -> bool:
        return bool(self.runs or self.files)

    def networks(self, interval: Sequence[int], *, single: bool) -> list[Network]:
        """Returns them, not opened yet: of the runs those within the interval, or all if it is the ``single`` one."""
        networks = []
        for name, run in self.runs.items():
            numbers = [number for number in run.present_numbers if single or interval[0] <= number <= interval[-1]]
            if not numbers:
                between = "" if single else f" of {run.settings.unit}s {interval[0]} to {interval[-1]}"
                raise wrong_value(f"also[{name!r}]", f"a run with checkpoints{between}", str(run.path))
            networks += networks_in(run, numbers, name)
        return networks + find_named(self.files, "also")


def check_also(name: str, also: Any) -> Sequence[Any] | Mapping[str, Any] | None:
    if also is None:
        return None
    if isinstance(also, str | os.PathLike) or not isinstance(also, Mapping | Sequence):
        raise wrong_type(name, "a list of run directories, or a dict from names to them", also)
    for key, place in also.items() if isinstance(also, Mapping) else enumerate(also):
        if isinstance(also, Mapping):
            check_name(f"a key of {name}", key)
        expected = "the path of a run directory, or of a file of weights"
        check_instance(f"{name}[{key!r}]", place, (RunDirectory, str, os.PathLike), expected)
    return also


def find_further_runs(also: Sequence[Any] | Mapping[str, Any] | None, run: RunDirectory) -> FurtherRuns:
    """Opens the runs or files of weights at checked places; that of ``run`` only names it."""
    files: list[tuple[str, str]] = []
    runs: list[tuple[str, RunDirectory]] = []
    given = also.items() if isinstance(also, Mapping) else [("", item) for item in also or ()]
    for index, (key, item) in enumerate(given):
        label = f"also[{key or index!r}]"
        if not isinstance(item, RunDirectory) and is_weights_file(item):
            file = check_directory(label, item)
            files.append((key or file.stem, str(file)))
            continue
        other = item if isinstance(item, RunDirectory) else RunDirectory(find_run(item, label))
        units = other.settings.unit, run.settings.unit
        if units[0] != units[1]:
            raise ValueError(
                f"{label} counts its checkpoints in {units[0]}s, but {run.path} in {units[1]}s, so their numbers "
                "cannot stand in one picture. Give pca_plane both runs as lists of files, which are only counted."
            )
        runs.append((key, other))
    place = _folder(run.path)
    others = [(key, other) for key, other in runs if _folder(other.path) != place]
    folders = [place, *(_folder(other.path) for _, other in others)]
    first, *defaults = names_of_folders(folders, "also")
    first = next((key for key, other in runs if key and _folder(other.path) == place), first)
    named = [(key or default, other) for (key, other), default in zip(others, defaults, strict=True)]
    names = [first, *(name for name, _ in (*named, *files))]
    if len(set(names)) < len(names):
        raise wrong_value("also", "a dict from different names to run directories and files of weights", names)
    return FurtherRuns(first, dict(named), dict(files)) if named or files else FurtherRuns()


def _folder(path: AnyPath) -> PurePosixPath:
    return PurePosixPath(with_slashes(path.resolve() if isinstance(path, Path) else path))


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
