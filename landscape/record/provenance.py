"""What every file says of how, when and with which function its contents were measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from workers.evaluator import DataSetDescription, EvaluatorDescription
from workers.pools.first_call import FirstCall

FUNCTION = "function"
"""The attribute that names the callback_fn with which a landscape was measured."""
RUN = "run_directory"
FURTHER_RUNS = "further_run_directories"
"""The attribute that says where the run of a landscape is, seen from the file, if the file does not lie in it."""


def measured_attributes(description: EvaluatorDescription) -> dict[str, Any]:
    return {
        "network": description.space.network,
        "num_samples": description.num_samples,
        **({"datasets": [data_set_json(item) for item in description.datasets]} if description.datasets else {}),
        "seed_each_point": description.options.seed_each_point,
        "partition_dependent": description.partition_dependent,
        "measurement_plan": description.plan.to_json(),
        "notes": list(description.notes),
        "created": _now(),
        "versions": _versions(description.space.framework),
    }


def function_attribute(callback_fn: Callable[[], Any]) -> dict[str, str]:
    """Returns the attribute ``module:function`` of a callback_fn; empty where that imports none, as of a lambda."""
    callback_fn = callback_fn.func if isinstance(callback_fn, FirstCall) else callback_fn
    module, name = (str(getattr(callback_fn, item, "")) for item in ("__module__", "__qualname__"))
    is_there = getattr(sys.modules.get(module), name, None) is callback_fn
    return {FUNCTION: f"{module}:{name}"} if is_there and module != "__main__" else {}


def run_attributes(run: AnyPath, further: Mapping[str, AnyPath], folder: AnyPath) -> dict[str, Any]:
    """Returns attributes with the ways from ``folder`` to a plane's runs; that to ``run`` is left out if it is "."."""
    own = _way(run, folder)
    others = {name: _way(other, folder) for name, other in further.items()}
    return {**({} if own == "." else {RUN: own}), **({FURTHER_RUNS: others} if others else {})}


def _way(run: AnyPath, folder: AnyPath) -> str:
    if isinstance(run, Path) and isinstance(folder, Path):
        # Neither a moved project nor a name in a home directory must matter.
        return os.path.relpath(run.resolve(), folder.resolve())
    return "." if run == folder else str(run.absolute() if isinstance(run, Path) else run)


def data_set_json(item: DataSetDescription) -> dict[str, Any]:
    return {"name": item.name, "num_samples": item.num_samples, "sha256": item.samples_sha256}


def _now() -> str:
    # SOURCE_DATE_EPOCH is the convention by which builds are made reproducible to the byte.
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def _versions(framework: str) -> dict[str, str]:
    module = sys.modules.get(framework)
    try:
        ours = version("summary-landscape")
    except ModuleNotFoundError:
        ours = "unknown"
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, "summary-landscape": ours}
    return versions if module is None else {**versions, framework: str(module.__version__)}
