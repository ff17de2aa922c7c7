"""The networks on a plane: checkpoints of runs, and networks of no run, in whatever form a user gives their weights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from collectors.errors import CheckpointError, reporting
from collectors.files.places import check_directory, is_url, with_slashes
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory
from collectors.validation import check_instance, check_int, wrong_type, wrong_value
from collectors.weights.aligned import Weights, align, as_reader
from collectors.weights.foreign_checkpoint import CHECKPOINT_SUFFIXES
from workers.users_code import warn_user

from ..roles import CHECKPOINT, FINAL_WEIGHTS, NETWORK, NO_RUN, OriginRole, check_name

# Such as Hugging Face's: one folder for each checkpoint of a run.
_CHECKPOINT_FOLDER = re.compile(r"(checkpoint|ckpt|epoch|step|global_step|iter)[-_]?\d+", re.IGNORECASE)
_EXPECTED = "a list of checkpoints, a RunDirectory, or a dict from a run's name to either"
_MOST_PARTS, _MOST_LETTERS = 4, 24


@dataclass(frozen=True)
class Network:
    """One set of weights, and whose it is.

    Attributes:
        weights: as a user gives them, or the ``RunDirectory`` that has the checkpoint; once opened, a reader under the
            names of the network that spans the plane.
        name: of a network that belongs to no run; "" for a checkpoint, which its number names.
        run: the name of the run that the checkpoint belongs to, "" for a single run; None for a network of no run.
        number: of the checkpoint; None for a network of no run.
        final: whether these are the weights with which the run's training ended.
        sha256: by which the weights are recognized; "" before ``recognized`` is called.
        label: how errors call the weights before they are opened.
    """

    weights: Weights = field(repr=False, compare=False)
    name: str = ""
    run: str | None = None
    number: int | None = None
    final: bool = False
    sha256: str = ""
    label: str = field(default="", repr=False, compare=False)

    @property
    def role(self) -> OriginRole:
        """What the origin of a plane is that runs through these weights."""
        if self.run is None:
            return OriginRole(NETWORK, self.name)
        return OriginRole(FINAL_WEIGHTS if self.final else CHECKPOINT, run=self.run, number=self.number)

    def opened(self, space: WeightSpace) -> Network:
        """Returns it with a reader as its weights; a CheckpointError where they do not fit the network."""
        if isinstance(self.weights, RunDirectory):
            assert self.number is not None
            return replace(self, weights=self.weights.checkpoint(self.number, space))
        return replace(self, weights=align(as_reader(self.label, self.weights), space))

    def recognized(self) -> Network:
        """Returns it with its SHA-256."""
        return self if self.sha256 else replace(self, sha256=self.weights.sha256())


def runs_of(networks: Iterable[Network]) -> dict[str, list[Network]]:
    runs: dict[str, list[Network]] = {}
    for network in networks:
        if network.run is not None:
            runs.setdefault(network.run, []).append(network)
    return runs


def networks_text(networks: Sequence[Network]) -> str:
    parts = []
    for name, of_run in runs_of(networks).items():
        count = len(of_run)
        parts.append(f"{count} checkpoint{'s' * (count != 1)}" + (f" of {_shortened(name)}" if name else ""))
    if names := [_shortened(network.name) for network in networks if network.run is None]:
        more = f" and {len(names) - _MOST_PARTS} more" if len(names) > _MOST_PARTS else ""
        parts.append(f"networks {', '.join(names[:_MOST_PARTS])}{more}")
    if len(parts) > _MOST_PARTS:
        parts[_MOST_PARTS:] = [f"{len(parts) - _MOST_PARTS} more"]
    return ", ".join(parts)


def columns_of(networks: Sequence[Network]) -> dict[str, Any]:
    """Returns the networks as files keep them, see ``CheckpointsData``: a network of no run has its row as number."""
    runs = list(runs_of(networks))
    return {
        "number": tuple(row if item.number is None else item.number for row, item in enumerate(networks)),
        "run": tuple(NO_RUN if item.run is None else runs.index(item.run) for item in networks),
        "runs": tuple(runs),
        **{field: tuple(getattr(item, field) for item in networks) for field in ("name", "final", "sha256")},
    }


def find_networks(
    checkpoints: object, numbers: object = None, argument: str = "checkpoints", *, needed: bool = True
) -> list[Network]:
    """Returns checkpoints run by run, not opened yet, of what ``pca_plane`` takes; none only if ``needed`` is false."""
    runs = _runs_by_name(checkpoints, numbers, argument)
    if isinstance(numbers, Mapping):
        if unknown := [name for name in numbers if name not in runs]:
            raise wrong_value("numbers", f"a dict with the names of runs, {list(runs)} (not {unknown})", list(numbers))
    elif numbers is not None and len(runs) > 1:
        raise wrong_type("numbers", "a dict from the runs' names to their numbers, as there are several runs", numbers)
    else:
        numbers = dict.fromkeys(runs, numbers)
    networks_of = {name: _networks_of_run(name, of_run, numbers.get(name), argument) for name, of_run in runs.items()}
    empty = [name for name, networks in networks_of.items() if not networks]
    if empty and (needed or len(networks_of) > 1):
        raise wrong_value(argument, "runs with at least one checkpoint each", {name: [] for name in empty})
    return [network for networks in networks_of.values() for network in networks]


def find_named(weights: Any, argument: str) -> list[Network]:
    """Returns networks of no run, not opened yet, of a dict from their names."""
    return [
        Network(item, check_name(f"a key of {argument}", name), label=f"{argument}[{name!r}]")
        for name, item in check_instance(argument, weights, Mapping, "a dict from names to weights").items()
    ]


def networks_in(run: RunDirectory, numbers: Sequence[int] | None = None, name: str = "") -> list[Network]:
    chosen = sorted(run.metadata.files) if numbers is None else list(numbers)
    return checkpoints_of_run([run] * len(chosen), chosen, name, run.metadata.final_number)


def checkpoints_of_run(
    weights: Sequence[Weights], numbers: Sequence[int], name: str = "", final: int | None = None, label: str = ""
) -> list[Network]:
    """Returns the checkpoints of one run in order; the last one holds the final weights if its number is ``final``."""
    last = len(numbers) - 1
    return [
        Network(item, "", name, number, final=place == last and number == final, label=f"{label}[{place}]")
        for place, (item, number) in enumerate(zip(weights, numbers, strict=True))
    ]


def joined(
    present: Sequence[Network], added: Sequence[Network], name: str | None
) -> tuple[list[Network], list[Network]]:
    """Returns a plane's networks, a run named as ``added`` names the same weights or by ``name``, and who is new."""
    runs, added_runs = runs_of(present), runs_of(added)
    if name is not None and "" not in runs:
        raise ValueError(
            f"name is for a plane whose own run has no name yet, but this one has the runs {list(runs)}; the "
            "keys of runs and networks are the names of what is added. Leave name out."
        )
    renamed: dict[str, list[Network]] = {}
    for run, networks in runs.items():
        digests = [network.sha256 for network in networks]
        same = next(
            (of for of in added_runs if run in ("", of) and [item.sha256 for item in added_runs[of]] == digests), None
        )
        if same is not None:
            given = added_runs.pop(same)
            renamed[run] = [replace(new, weights=old.weights) for old, new in zip(networks, given, strict=True)]
        elif not run and (added_runs or name is not None):
            called = (name_of_folder(networks[-1].weights) or "run") if name is None else check_name("name", name)
            renamed[run] = [replace(network, run=called) for network in networks]
    now = [network if network.run not in renamed else renamed[network.run].pop(0) for network in present]
    new = [network for network in added if network.run is None or network.run in added_runs]
    taken = [one for one in (*runs_of(now), *(network.name for network in now)) if one]
    names = [network.name for network in new if network.run is None]
    wrong = [one for one in (*added_runs, *names) if one in taken] + [one for one in names if one in added_runs]
    if wrong:
        raise wrong_value(
            "runs and networks", f"names that the plane does not have yet (it has {taken}) and that differ", wrong
        )
    return now, new


def is_weights_file(place: object) -> bool:
    """Returns whether a path is of a file of weights, or of a folder that is one checkpoint, rather than of a run."""
    path = str(place)
    if not is_url(path):
        if Path(path).is_file():
            return True
        if (Path(path) / CHECKPOINT_FOLDER).is_dir():
            return False
    return path.lower().endswith(CHECKPOINT_SUFFIXES)


def is_run_folder(place: object) -> bool:
    """Returns whether there is a run directory at a path or URL."""
    with reporting(f"{place} cannot be read", kind=CheckpointError):
        return (check_directory("checkpoints", place) / CHECKPOINT_FOLDER).is_dir()


def name_of_folder(weights: Weights) -> str | None:
    """Returns the name of the folder of the run that weights come from; None for weights that were in memory."""
    folder = _run_folder(weights)
    return None if folder is None or not folder.name else names_of_folders([folder])[0]


def names_of_folders(folders: Sequence[PurePosixPath], argument: str = "checkpoints") -> list[str]:
    """Returns the names of different folders, with as many of those above them as tell them apart."""
    if len(set(folders)) < len(folders):
        raise wrong_value(argument, "different run directories", [str(folder) for folder in folders])
    depth = 1
    while len({folder.parts[-depth:] for folder in folders}) < len(folders):
        depth += 1
    return [check_name("a run's folder", "/".join(folder.parts[-depth:])[-100:]) for folder in folders]


def _runs_by_name(checkpoints: object, numbers: object, argument: str) -> dict[str, Any]:
    if isinstance(checkpoints, Mapping):
        if not checkpoints:
            raise wrong_value(argument, "at least one run", {})
        for name, of_run in checkpoints.items():
            if not _is_list(of_run) and not isinstance(of_run, RunDirectory):
                raise wrong_type(f"{argument}[{name!r}]", "a list of checkpoints or a RunDirectory", of_run)
        several = len(checkpoints) > 1
        return {check_name(f"a key of {argument}", name, needed=several): item for name, item in checkpoints.items()}
    if isinstance(checkpoints, RunDirectory):
        return {"": checkpoints}
    if not isinstance(checkpoints, Sequence) or not _is_list(checkpoints):
        raise wrong_type("checkpoints", _EXPECTED, checkpoints)
    if any(isinstance(item, RunDirectory) for item in checkpoints):
        for index, item in enumerate(checkpoints):
            check_instance(f"checkpoints[{index}]", item, RunDirectory, "a RunDirectory, as others of the list are")
        names = names_of_folders([PurePosixPath(with_slashes(item.path)) for item in checkpoints])
        return dict(zip(names, checkpoints, strict=True))
    folders = [_run_folder(item) for item in checkpoints]
    if len({folder for folder in folders if folder is not None}) < 2:
        return {"": checkpoints}
    return _runs_of_folders(checkpoints, folders, numbers)


def _runs_of_folders(
    checkpoints: Sequence[Weights], folders: Sequence[PurePosixPath | None], numbers: object
) -> dict[str, Any]:
    if None in folders:
        raise ValueError(
            "checkpoints must say which run each of them belongs to: some are files of several folders, and others "
            "lie in memory. Pass a dict from the run's name to its checkpoints."
        )
    if numbers is not None:
        raise ValueError(
            "numbers must be left out for files of several folders, which are several runs; pass a dict from the run's "
            "name to its checkpoints, and one from the name to their numbers."
        )
    by_folder: dict[PurePosixPath, list[Weights]] = {}
    for item, folder in zip(checkpoints, folders, strict=True):
        assert folder is not None
        by_folder.setdefault(folder, []).append(item)
    if all(len(items) == 1 for items in by_folder.values()):
        warn_user(
            f"the {len(by_folder)} checkpoints lie in as many folders, so each is a run of its own, and no path joins "
            "them. If they are one run's, say so with a dict: {'name of the run': [...]}.",
        )
    return dict(zip(names_of_folders(list(by_folder)), by_folder.values(), strict=True))


def _networks_of_run(name: str, checkpoints: Any, numbers: Any, argument: str) -> list[Network]:
    """Returns the checkpoints of a run; numbers that are None count from 0, or are all that the directory has."""
    label = f"numbers[{name!r}]" if name else "numbers"
    if numbers is not None:
        if isinstance(numbers, str | bytes) or not isinstance(numbers, Sequence | np.ndarray):
            raise wrong_type(label, "a list of numbers", numbers)
        numbers = [check_int(f"{label}[{index}]", number) for index, number in enumerate(numbers)]
    if isinstance(checkpoints, RunDirectory):
        return networks_in(checkpoints, numbers, name)
    chosen = list(range(len(checkpoints))) if numbers is None else numbers
    if len(chosen) != len(checkpoints):
        raise wrong_value(label, f"a list with one number for each of the {len(checkpoints)} checkpoints", chosen)
    return checkpoints_of_run(checkpoints, chosen, name, label=f"{argument}[{name!r}]" if name else argument)


def _shortened(name: str) -> str:
    return repr(name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 3]}...")


def _run_folder(weights: Weights) -> PurePosixPath | None:
    if isinstance(weights, str | os.PathLike):
        text = str(Path(weights).absolute()) if "://" not in os.fspath(weights) else str(weights)
    elif str(getattr(weights, "label", "")).lower().endswith(CHECKPOINT_SUFFIXES):
        text = str(weights.label)
    else:
        return None
    folder = PurePosixPath(with_slashes(text)).parent
    return folder.parent if folder.name == CHECKPOINT_FOLDER or _CHECKPOINT_FOLDER.fullmatch(folder.name) else folder


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
