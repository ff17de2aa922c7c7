"""Names of metrics, one rule for all: ``loss_stderr[3]@test`` is the standard error on group 3 of data set "test"."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass

from .errors import CallbackFunctionError

PROJECTED_PREFIX = "projected_"
"""Of the columns in a landscape file that hold a checkpoint's values at its foot on the plane."""
PLANE_BUFFERS_SUFFIX = "_with_plane_buffers"  # of the columns that hold a checkpoint's values with the plane's buffers

EXTREMES = ("max_eigenvalue", "min_eigenvalue", "convexity_ratio")
"""Both ends of the Hessian's spectrum, and the size of their ratio: measured at each point where it is asked for."""

SAMPLE_LOSSES = "loss[samples]"
"""Of what an evaluator returns beside its metrics: the loss of each sample; that of another set ends with its name."""

_USED_BY_THE_FILE = frozenset(
    (
        "x", "y", "status", "errors", "checkpoints", "origin", "directions", "number", "residual", "norm", "run",
        "final", "name", "run_name", "sha256", "role", "samples",
    )
)  # fmt: skip
_OF_THE_LOSS = frozenset(("loss", "loss_stderr", "loss_error"))
_RESERVED = "@[]"
_WITH_SET = re.compile(r"(?P<metric>[^@\[\]]+)(\[(?P<group>[^@\[\]]+)\])?(@(?P<set>[^@\[\]]+))?")
_GROUPED = re.compile(r"(.+)\[([^\[\]]*)\]", re.DOTALL)


@dataclass(frozen=True)
class MetricName:
    """What a metric's name says."""

    quantity: str  # what was measured, such as "loss" or "accuracy"; one quantity has one scale on all data sets
    group: str = ""  # the group of samples; "" for all of them
    dataset: str = ""  # the data set; "" for the main one

    @classmethod
    def read(cls, name: str, among: Container[str]) -> MetricName:
        """Reads a name among all names; "acc@5" is a quantity unless there is "loss@5": each data set has a loss."""
        head, at, dataset = name.rpartition("@")
        if not at or f"loss@{dataset}" not in among:
            head, dataset = name, ""
        grouped = _GROUPED.fullmatch(head)
        if grouped and str(cls("loss", grouped[2], dataset)) in among:
            return cls(grouped[1], grouped[2], dataset)
        return cls(head, "", dataset)

    def __str__(self) -> str:
        group, dataset = f"[{self.group}]" if self.group else "", f"@{self.dataset}" if self.dataset else ""
        return f"{self.quantity}{group}{dataset}"

    @property
    def standard_error(self) -> str:
        return str(MetricName(f"{self.quantity}_stderr", self.group, self.dataset))

    @property
    def is_error(self) -> bool:
        """Whether it says how exact another metric is."""
        return self.quantity.endswith("_stderr") or self.quantity == "loss_error"

    def text(self, main: str = "") -> str:
        """Returns the name in words, such as "loss on test"; ``main`` names the main data set, "" leaves it out."""
        group = f" of group {self.group}" if self.group else ""
        dataset = self.dataset or main
        return f"{self.quantity}{group}" + (f" on {dataset}" if dataset else "")


def other_datasets(names: Iterable[str]) -> list[str]:
    """Returns the data sets on which metrics were measured, without the main one, in the order of the names."""
    return [name.removeprefix("loss@") for name in names if name.startswith("loss@") and name != "loss@"]


def name_in_set(metric: str, data_set: str) -> str:
    """Returns the name of a metric of a data set beside the main one, such as "loss@test"."""
    return f"{metric}@{data_set}"


def name_in_group(metric: str, group: int) -> str:
    """Returns the name of a metric of one group of samples, such as "loss[3]"."""
    return f"{metric}[{group}]"


def metric_of(name: str) -> str:
    """Returns the name of what is measured without its group and data set: "loss_stderr" of "loss_stderr@test"."""
    match = _WITH_SET.fullmatch(name)
    return name if match is None else match["metric"]


def check_set_name(name: object) -> str:
    """Returns the name of a data set, under which a landscape file must be able to store metrics."""
    if not _is_storable(name) or any(letter in str(name) for letter in _RESERVED):
        raise CallbackFunctionError(
            "the name of a data set must be printable text without '/', '@', '[' or ']' that does not start with '.', "
            f"but got {name!r}. Rename it in the mapping that callback_fn returns."
        )
    return str(name)


def metric_name_problem(name: object) -> str | None:
    """Returns why a landscape file cannot store a metric under that name, or None where it can."""
    if not isinstance(name, str) or not _is_storable(name):
        return (
            "the name of a metric must be printable text without '/' that does not start with '.', but got "
            f"{name!r}. Rename the metric."
        )
    if _WITH_SET.fullmatch(name) is None:
        return _reserved(name)
    used = metric_of(name) in _USED_BY_THE_FILE
    if used or name.startswith(PROJECTED_PREFIX) or PLANE_BUFFERS_SUFFIX in f"_{name}":
        return _used(name)
    return None


def check_metric_name(name: object) -> str:
    """Returns the name of a user's metric, which a landscape file must be able to store and the loss must not have."""
    problem = _used(name) if name in _OF_THE_LOSS else metric_name_problem(name)
    if problem is None and any(letter in str(name) for letter in _RESERVED):
        problem = _reserved(name)
    if problem is not None:
        raise CallbackFunctionError(problem)
    assert isinstance(name, str)
    return name


def _is_storable(name: object) -> bool:
    is_text = isinstance(name, str) and bool(name) and name.isprintable()  # "\0" is not
    return is_text and "/" not in str(name) and not str(name).startswith(".")


def _reserved(name: object) -> str:
    return (
        "the name of a metric must not contain '@', '[' or ']', by which the landscape file tells data sets and groups "
        f"apart (loss@test, loss[3]), but got {name!r}. Rename the metric, for example recall_at_10."
    )


def _used(name: object) -> str:
    return (
        f"the name of a metric must not be one that the landscape file uses itself, but got {name!r} (used: "
        f"{sorted(_OF_THE_LOSS | _USED_BY_THE_FILE)}, {PROJECTED_PREFIX}..., ...{PLANE_BUFFERS_SUFFIX}). Rename the "
        "metric."
    )
