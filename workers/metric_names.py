"""Which names a metric may have: one rule for everything that measures metrics or stores them."""

from __future__ import annotations

from .errors import CallbackFunctionError

PROJECTED_PREFIX = "projected_"
"""Of the columns in a landscape file that hold a checkpoint's values at its foot on the plane."""
PLANE_BUFFERS_SUFFIX = "_with_plane_buffers"
"""Of the columns that hold a checkpoint's values with the plane's buffers."""

_USED_BY_THE_FILE = frozenset(
    (
        "x", "y", "status", "errors", "checkpoints", "origin", "directions", "number", "residual", "norm", "run",
        "final", "name", "run_name", "role",
    )
)  # fmt: skip
_OF_THE_LOSS = frozenset(("loss", "loss_stderr", "loss_error"))


def metric_name_problem(name: object) -> str | None:
    """Returns why a landscape file cannot store a metric under that name, or None where it can."""
    if (
        not isinstance(name, str)
        or not name
        or not name.isprintable()  # neither is "\0"
        or "/" in name
        or name.startswith(".")
    ):
        return (
            "the name of a metric must be printable text without '/' that does not start with '.', but got "
            f"{name!r}. Rename the metric."
        )
    if name in _USED_BY_THE_FILE or name.startswith(PROJECTED_PREFIX) or PLANE_BUFFERS_SUFFIX in f"_{name}":
        return _used(name)
    return None


def check_metric_name(name: object) -> str:
    """Returns the name of a user's metric, which is measured beside the loss.

    Raises:
        CallbackFunctionError: a landscape file cannot store it, or the loss has that name.
    """
    problem = _used(name) if name in _OF_THE_LOSS else metric_name_problem(name)
    if problem is not None:
        raise CallbackFunctionError(problem)
    assert isinstance(name, str)
    return name


def _used(name: object) -> str:
    return (
        f"the name of a metric must not be one that the landscape file uses itself, but got {name!r} (used: "
        f"{sorted(_OF_THE_LOSS | _USED_BY_THE_FILE)}, {PROJECTED_PREFIX}..., ...{PLANE_BUFFERS_SUFFIX}). Rename the "
        "metric."
    )
