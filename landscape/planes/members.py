"""Further runs and networks on a plane that exists: where they lie, and who is on it then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.networks.weight_space import State, WeightSpace
from collectors.validation import wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, Weights, align, as_reader
from collectors.weights.safetensors_file import MemoryState

from ..roles import NO_RUN, Members, check_name
from .directions import Direction
from .projection import Projection, project
from .runs import Run, check_numbers, find_runs, name_of_folder, read_run

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64


@dataclass(frozen=True, eq=False)
class ProjectedCheckpoints:
    """Where n checkpoints lie, seen from a plane or a line of d directions; nothing of them is measured.

    Attributes:
        coordinates: of each one's foot on the plane, shape (n, d), in units of the directions.
        residuals: distance from the checkpoint to its foot, over all trainable elements, shape (n,).
        norms: distance from the checkpoint to the plane's origin, shape (n,).
        numbers: of the checkpoints (epochs or steps), shape (n,).
        runs: n names of runs; "" for a single run without a name.
    """

    coordinates: Float64[np.ndarray, "n d"]
    residuals: Float64[np.ndarray, " n"]
    norms: Float64[np.ndarray, " n"]
    numbers: Int64[np.ndarray, " n"]
    runs: tuple[str, ...]

    @property
    def x(self) -> Float64[np.ndarray, " n"]:
        """The coordinates along the first direction."""
        return self.coordinates[:, 0]

    @property
    def y(self) -> Float64[np.ndarray, " n"] | None:
        """The coordinates along the second direction; None on a line."""
        return self.coordinates[:, 1] if self.coordinates.shape[1] == 2 else None


@dataclass(frozen=True, eq=False)
class Company:
    """Who is on a plane: members, their weights, and where these lie."""

    members: Members
    checkpoints: tuple[Any, ...] = ()
    projection: Projection | None = None


def project_checkpoints(
    checkpoints: object, numbers: object, space: WeightSpace, origin: State, directions: Sequence[Direction]
) -> ProjectedCheckpoints:
    """Returns where checkpoints lie; ``Plane.project`` explains the first two arguments."""
    runs = _read_runs(find_runs(checkpoints, numbers), numbers, space)
    states = [align(reader, space) for run in runs for reader in run.readers]
    if not states:
        raise wrong_value("checkpoints", "at least one checkpoint", checkpoints)
    found = project(states, MemoryState(origin, "the plane's origin"), directions, space)
    return ProjectedCheckpoints(
        coordinates=np.stack([found.x] if found.y is None else [found.x, found.y], axis=1),
        residuals=found.residual,
        norms=found.norm,
        numbers=np.array([number for run in runs for number in run.numbers], np.int64),
        runs=tuple(run.name for run in runs for _ in run.numbers),
    )


def add_members(
    before: Company,
    runs: object,
    networks: object,
    numbers: object,
    name: str | None,
    space: WeightSpace,
    origin: State,
    directions: Sequence[Direction],
) -> Company:
    """Returns who is on a plane with further runs and networks; ``Plane.with_checkpoints`` explains the arguments."""
    given = _given_runs(runs)
    named = _given_networks(networks)
    if not given and not named:
        raise ValueError(
            "with_checkpoints needs runs or networks, such as runs={'adam': RunDirectory('run_adam')} or "
            "networks={'EMA': ema.state_dict()}."
        )
    added = _read_runs(given, numbers, space, "runs")
    states = {run.name: [align(reader, space) for reader in run.readers] for run in added}
    digests = {run: tuple(state.sha256() for state in held) for run, held in states.items()}
    company, there = _renamed(before, added, digests, name)
    fresh = [run for run in added if run.name not in there]
    _check_new_names(company.members, [run.name for run in fresh], list(named))
    others = {label: align(as_reader(f"networks[{label!r}]", item), space) for label, item in named.items()}
    joined: list[AlignedState] = [state for run in fresh for state in states[run.name]]
    joined += others.values()
    of_runs = Members.of_runs({run.name: run.numbers for run in fresh}, [run.finished for run in fresh])
    sha256 = (*(text for run in fresh for text in digests[run.name]), *(item.sha256() for item in others.values()))
    members = _joined_members(company.members, of_runs, list(named), sha256)
    if not joined:
        return replace(company, members=members)
    seen = project(joined, MemoryState(origin, "the plane's origin"), directions, space)
    return Company(members, (*company.checkpoints, *joined), _joined_projection(company.projection, seen))


def _given_runs(runs: object) -> dict[str, Any]:
    if runs is None or runs == {}:
        return {}
    if not isinstance(runs, Mapping):
        raise wrong_type("runs", "a dict from the runs' names to lists of checkpoints or RunDirectories", runs)
    for name in runs:
        check_name("a key of runs", name)
    return find_runs(runs, None, label="runs")


def _given_networks(networks: object) -> dict[str, Weights]:
    if networks is None:
        return {}
    if not isinstance(networks, Mapping):
        raise wrong_type("networks", "a dict from names to weights", networks)
    return {check_name("a key of networks", name): weights for name, weights in networks.items()}


def _read_runs(found: Mapping[str, Any], numbers: object, space: WeightSpace, label: str = "checkpoints") -> list[Run]:
    chosen = check_numbers(found, numbers)
    runs = [read_run(name, of_run, chosen[name], space, label) for name, of_run in found.items()]
    if empty := [run.name for run in runs if not run.readers]:
        raise wrong_value(label, "runs with at least one checkpoint each", {name: [] for name in empty})
    return runs


def _renamed(
    before: Company, added: Sequence[Run], digests: Mapping[str, tuple[str, ...]], name: str | None
) -> tuple[Company, list[str]]:
    """Returns who is there, each run named as a given run of its weights or ``name``, and those given runs' names."""
    members = before.members
    if name is not None and "" not in members.runs:
        raise ValueError(
            f"name is for a plane whose own run has no name yet, but this one has the runs {list(members.runs)}; the "
            "keys of runs and networks are the names of what is added. Leave name out."
        )
    runs, number, final = list(members.runs), list(members.number), list(members.final)
    there = []
    for index, label in enumerate(members.runs):
        rows = [row for row, run in enumerate(members.run) if run == index]
        own = tuple(members.sha256[row] for row in rows)
        same = next((run for run in added if digests[run.name] == own and label in ("", run.name)), None)
        if same is not None:
            there.append(same.name)
            runs[index] = same.name
            for row, value in zip(rows, same.numbers, strict=True):
                number[row] = value
            final[rows[-1]] = same.finished
        elif not label and (added or name is not None):
            runs[index] = check_name("name", name) if name is not None else _own_name(before, rows)
    members = replace(members, runs=tuple(runs), number=tuple(number), final=tuple(final))
    return replace(before, members=members), there


def _own_name(before: Company, rows: Sequence[int]) -> str:
    """Returns the name of the folder from which a run without a name was read; "run" where it was in memory."""
    return name_of_folder(before.checkpoints[rows[-1]]) or "run"


def _check_new_names(members: Members, runs: Sequence[str], networks: Sequence[str]) -> None:
    taken = [name for name in (*members.runs, *members.name) if name]
    wrong = [name for name in (*runs, *networks) if name in taken]
    wrong += [name for name in networks if name in runs]
    if wrong:
        raise wrong_value(
            "runs and networks", f"names that the plane does not have yet (it has {taken}) and that differ", wrong
        )


def _joined_members(first: Members, runs: Members, networks: Sequence[str], sha256: tuple[str, ...]) -> Members:
    count = len(first.number) + len(runs.number)
    return Members(
        number=(*first.number, *runs.number, *range(count, count + len(networks))),
        run=(*first.run, *(len(first.runs) + run for run in runs.run), *(NO_RUN,) * len(networks)),
        runs=(*first.runs, *runs.runs),
        name=(*first.name, *runs.name, *networks),
        final=(*first.final, *runs.final, *(False,) * len(networks)),
        sha256=(*first.sha256, *sha256),
    )


def _joined_projection(first: Projection | None, second: Projection) -> Projection:
    if first is None:
        return second
    parts: dict[str, Any] = {}
    for name, value in vars(first).items():
        parts[name] = None if value is None else np.concatenate([value, getattr(second, name)])
    return Projection(**parts)
