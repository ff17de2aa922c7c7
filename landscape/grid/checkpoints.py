"""Who is on the plane: its origin, the checkpoints of runs, and networks that belong to no run; and their roles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64, Int64, UInt8

from ..record.checks import PointStatus, check_array, check_metric_names, check_metrics, check_status
from ..roles import CHECKPOINT, FINAL_WEIGHTS, NETWORK, NO_RUN, ORIGIN, ROLES, check_name

PARTS = {
    "own": ("metrics", "status"),
    "projected": ("projected", "projected_status"),
    "with_plane_buffers": ("with_plane_buffers", "with_plane_buffers_status"),
}
"""What the values and the statuses of each kind of a checkpoint's losses are called in ``CheckpointsData``."""
_DTYPES = {
    "number": np.int64, "x": np.float64, "y": np.float64, "residual": np.float64, "norm": np.float64, "run": np.int64,
    "final": np.bool_,
}  # fmt: skip
_DIGEST = re.compile("([0-9a-f]{64})?")


@dataclass(repr=False)
class CheckpointsData:
    """The n networks that are projected onto the plane: checkpoints of runs, and networks that belong to no run.

    The rows of one run are its path, in order; nothing joins rows of different runs, or networks of no run.

    Attributes:
        number: the checkpoints' numbers (epochs or steps), int64[n]; a network of no run has its place among the rows.
        x: first coordinate of each row's foot on the plane, float64[n].
        y: second coordinate, float64[n], or None for a line.
        residual: distance from the checkpoint to its foot, float64[n].
        norm: distance from the checkpoint to the origin, float64[n].
        metrics: float64[n] by name; measured at the checkpoint itself with its own buffers.
        projected: float64[n] by name; measured at its foot, with the plane's buffers.
        with_plane_buffers: float64[n] by name; the checkpoint itself with the plane's buffers. Empty where the
            network has no buffers.
        status: ``PointStatus`` of ``metrics``, uint8[n].
        projected_status: ``PointStatus`` of ``projected``, uint8[n].
        with_plane_buffers_status: ``PointStatus`` of ``with_plane_buffers``, uint8[n], or None without buffers.
        run: which of ``runs`` each row belongs to, int64[n]; -1 for a network of no run.
        runs: the runs' names; a single run may have the name "".
        name: n names; "" for a checkpoint, which its number names.
        final: whether the row holds the weights with which its run's training ended, bool[n].
        sha256: n digests by which the weights are recognized; "" where a file does not say.
    """

    number: Int64[np.ndarray, " n"]
    x: Float64[np.ndarray, " n"]
    y: Float64[np.ndarray, " n"] | None
    residual: Float64[np.ndarray, " n"]
    norm: Float64[np.ndarray, " n"]
    metrics: dict[str, Float64[np.ndarray, " n"]]
    projected: dict[str, Float64[np.ndarray, " n"]]
    with_plane_buffers: dict[str, Float64[np.ndarray, " n"]]
    status: UInt8[np.ndarray, " n"]
    projected_status: UInt8[np.ndarray, " n"]
    with_plane_buffers_status: UInt8[np.ndarray, " n"] | None
    run: Int64[np.ndarray, " n"]
    runs: tuple[str, ...]
    name: tuple[str, ...]
    final: Bool[np.ndarray, " n"]
    sha256: tuple[str, ...]

    def __repr__(self) -> str:
        count, measured = len(self.number), int((self.status == PointStatus.MEASURED).sum())
        return f"CheckpointsData({count} networks, {measured} measured; metrics {', '.join(self.metrics)})"

    @classmethod
    def empty(
        cls,
        number: Iterable[int],
        x: Float64[np.ndarray, " n"],
        y: Float64[np.ndarray, " n"] | None,
        residual: Float64[np.ndarray, " n"],
        norm: Float64[np.ndarray, " n"],
        metric_names: Iterable[str] = ("loss",),
        *,
        has_buffers: bool = False,
        **who: Any,
    ) -> CheckpointsData:
        """Returns checkpoints with known geometry and all measurements pending.

        ``who`` is ``run``, ``runs``, ``name``, ``final`` and ``sha256``; by default, they are those of one run.
        """
        names, number = tuple(metric_names), list(number)
        count = len(number)
        columns: dict[str, Any] = {
            "number": number, "x": x, "y": y, "residual": residual, "norm": norm, "run": (0,) * count, "runs": ("",),
            "name": ("",) * count, "final": (False,) * count, "sha256": ("",) * count,
            **{column: values for column, values in who.items() if values is not None},
        }  # fmt: skip
        for column, values in columns.items():
            if column not in _DTYPES:
                columns[column] = tuple(values)
            elif values is not None:
                columns[column] = np.array(list(values), _DTYPES[column])
        for part, (metrics, status) in PARTS.items():
            is_measured = has_buffers or part != "with_plane_buffers"
            columns[metrics] = {name: np.full(count, np.nan) for name in names} if is_measured else {}
            columns[status] = np.zeros(count, np.uint8) if is_measured else None
        return cls(**columns)

    @property
    def statuses(self) -> list[UInt8[np.ndarray, " n"]]:
        """``PointStatus`` of every kind of measurement that there is."""
        statuses = (getattr(self, status) for _, status in PARTS.values())
        return [status for status in statuses if status is not None]

    @property
    def paths(self) -> list[NDArray[np.intp]]:
        """The rows of each run that has any, in the order of its path."""
        paths = [np.flatnonzero(self.run == index) for index in range(len(self.runs))]
        return [rows for rows in paths if len(rows)]

    @property
    def networks(self) -> NDArray[np.intp]:
        """The rows of networks that belong to no run."""
        return np.flatnonzero(self.run == NO_RUN)

    def part(self, rows: NDArray[np.intp]) -> CheckpointsData:
        """Returns some rows alone."""
        parts: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                parts[name] = value[rows]
            elif isinstance(value, dict):
                parts[name] = {metric: values[rows] for metric, values in value.items()}
        parts |= {name: tuple(getattr(self, name)[row] for row in rows) for name in ("name", "sha256")}
        return replace(self, **parts)

    def run_name(self, row: int) -> str:
        """Returns the name of a row's run; "" where it has none."""
        return "" if self.run[row] == NO_RUN else self.runs[int(self.run[row])]

    def role(self, row: int) -> str:
        """Returns a row's role: "named network", "checkpoint" or "final weights"."""
        if self.run[row] == NO_RUN:
            return NETWORK
        return FINAL_WEIGHTS if self.final[row] else CHECKPOINT

    def label(self, row: int, unit: str) -> str:
        """Returns what a row is called: a network by its name, a checkpoint by its number and, among runs, its run."""
        return self.name[row] or ", ".join(text for text in (self.run_name(row), f"{unit} {self.number[row]}") if text)


@dataclass
class OriginData:
    """The origin of the plane, measured separately because the grid may have no point there.

    Attributes:
        x: 0.
        y: 0, or None for a line.
        metrics: numbers by name.
        status: what is known about it.
        role: "final weights" or "checkpoint" of a run, "named network", or "origin" where nothing is known.
        name: of a named network; else "".
        run: the name of its run; "" where it has none.
        number: of the run's checkpoint; else None.
    """

    x: float = 0.0
    y: float | None = 0.0
    metrics: dict[str, float] = field(default_factory=lambda: {"loss": float("nan")})
    status: PointStatus = PointStatus.PENDING
    role: str = ORIGIN
    name: str = ""
    run: str = ""
    number: int | None = None

    def label(self, unit: str) -> str:
        """Returns what the origin is, such as "final weights (epoch 20)" or the name of a network."""
        if self.role == NETWORK:
            return self.name
        of_run = f" of {self.run}" if self.run else ""
        if self.number is None:
            return self.role + of_run
        # Without a unit of its own a checkpoint is only counted.
        return f"{unit} {self.number}{of_run}" if unit == self.role else f"{self.role}{of_run} ({unit} {self.number})"


def check_checkpoints(checkpoints: CheckpointsData, *, line: bool) -> None:
    rows = len(checkpoints.number) if checkpoints.number.ndim == 1 else -1
    count = (rows,)
    if (checkpoints.y is None) != line:
        raise ValueError("checkpoints.y must be None for a line and an array for a plane.")
    for name, dtype in _DTYPES.items():
        if name != "y" or not line:
            check_array(f"checkpoints.{name}", getattr(checkpoints, name), count, dtype)
    if bool(checkpoints.with_plane_buffers) != (checkpoints.with_plane_buffers_status is not None):
        raise ValueError("checkpoints.with_plane_buffers and its status must be both there or both absent.")
    for part, (metrics, status) in PARTS.items():
        if part != "with_plane_buffers" or checkpoints.with_plane_buffers:
            check_metrics(f"checkpoints.{metrics}", getattr(checkpoints, metrics), count)
            check_status(f"checkpoints.{status}", getattr(checkpoints, status), count)
    runs = checkpoints.runs
    if len(checkpoints.name) != rows:
        raise ValueError(f"checkpoints.name must have {rows} names, but has {len(checkpoints.name)}.")
    if len(checkpoints.sha256) != rows or not all(map(_DIGEST.fullmatch, checkpoints.sha256)):
        raise ValueError(
            f"checkpoints.sha256 must have {rows} SHA-256 in hexadecimal or empty texts, but got "
            f"{checkpoints.sha256[:3]}."
        )
    if ((checkpoints.run < NO_RUN) | (checkpoints.run >= len(runs))).any():
        raise ValueError(
            f"checkpoints.run must hold {NO_RUN} (no run) or the place of one of the {len(runs)} runs, but got "
            f"{checkpoints.run.tolist()}."
        )
    for index, name in enumerate(runs):
        check_name(f"checkpoints.runs[{index}]", name, needed=len(runs) > 1)
    if len(set(runs)) < len(runs):
        raise ValueError(f"checkpoints.runs must be different names, but got {list(runs)}.")
    for row, name in enumerate(checkpoints.name):
        check_name(f"checkpoints.name[{row}]", name, needed=checkpoints.run[row] == NO_RUN)
    last = {int(path[-1]) for path in checkpoints.paths}
    wrong = [row for row in np.flatnonzero(checkpoints.final).tolist() if row not in last]
    if wrong:
        raise ValueError(f"checkpoints.final must be False but for the last row of a run, but rows {wrong} have True.")


def check_origin(origin: OriginData, *, line: bool) -> None:
    check_metric_names("origin.metrics", origin.metrics)
    if (origin.y is None) != line:
        raise ValueError("origin.y must be None for a line and a number for a plane.")
    if origin.role not in ROLES:
        raise ValueError(f"origin.role must be one of {list(ROLES)}, but got {origin.role!r}.")
    check_name("origin.name", origin.name, needed=origin.role == NETWORK)
    check_name("origin.run", origin.run, needed=False)
    if origin.role == NETWORK and (origin.run or origin.number is not None):
        raise ValueError("origin.run and origin.number must be absent for a named network, which has no run.")
