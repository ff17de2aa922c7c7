"""The rows of a curvature file: what a run begins with, what is left to do, and where results go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from collectors.files.places import AnyPath
from collectors.weights.aligned import AlignedState
from workers.curvature.measuring import CurvatureSettings, CurvatureValues
from workers.evaluator import EvaluatorDescription
from workers.pool import CurvatureResult

from ..errors import LandscapeNotFoundError
from ..file.checks import PointStatus
from ..file.kind import CURVATURE
from ..file.whole_file import check_replaceable
from ..survey.experiment import check_identity, measured_attributes
from .curvature_file import read_curvature
from .data import CurvatureData
from .vectors_file import has_vectors

Held: TypeAlias = Mapping[int, AlignedState]
"""Sets of weights by their numbers."""

_ASKED = ("top", "bottom", "trace_probes", "density_probes", "tolerance", "max_products", "seed")


def begun_before(
    description: EvaluatorDescription,
    weights: Held,
    settings: CurvatureSettings,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    *,
    overwrite: bool,
) -> tuple[CurvatureData, bool]:
    """Returns what is measured already, and whether a file of this identity is there.

    Args:
        description: what the workers measure.
        weights: by their numbers.
        settings: what is measured.
        path: the curvature file, which need not exist; None for what is in memory only.
        attributes: what the file says beside what is known here.
        overwrite: whether what is there does not count.

    Raises:
        LandscapeIdentityError: the file holds another experiment, or other weights under one of these numbers.
        LandscapeError: the file cannot be read; the subclass says why.
    """
    fresh = _fresh(description, weights, settings, attributes)
    if path is not None and overwrite:
        check_replaceable(path, CURVATURE)
    if path is None or overwrite:
        return fresh, False
    try:
        stored = read_curvature(path)
    except LandscapeNotFoundError:
        return fresh, False
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path, kind=CURVATURE)
    _check_same_weights(stored, fresh, path)
    return _joined(stored, fresh), True


def _fresh(
    description: EvaluatorDescription, weights: Held, settings: CurvatureSettings, attributes: Mapping[str, Any]
) -> CurvatureData:
    asked = {
        "matrix": settings.products.matrix,
        **{name: getattr(settings, name) for name in _ASKED},
        # Without a start, its length is nobody's.
        **({"density_steps": settings.density_steps} if settings.density_probes else {}),
    }
    seeded = {"seed_each_point": description.options.seed} if description.options.seed_each_point else {}
    own = {
        **asked,
        **measured_attributes(description),
        "weights": description.space.dimension,
        "identity": {
            **asked,
            **seeded,
            "samples": {"count": description.num_samples, "sha256": description.samples_sha256},
        },
    }
    numbers = sorted(weights)
    density = (settings.density_probes, settings.density_steps) if settings.density_probes else (0, 0)
    digests = [weights[number].sha256() for number in numbers]
    pairs = settings.top + settings.bottom
    return CurvatureData.empty(numbers, digests, pairs=pairs, density=density, attributes={**attributes, **own})


def _check_same_weights(stored: CurvatureData, fresh: CurvatureData, path: AnyPath) -> None:
    """Checks that a number means the same weights in the file and in this run."""
    both = sorted(set(stored.number.tolist()) & set(fresh.number.tolist()))
    before, now = (
        {f"{data.attributes.get('unit')} {number}": data.sha256[data.number.tolist().index(number)] for number in both}
        for data in (stored, fresh)
    )
    check_identity(before, now, path, kind=CURVATURE)


def _joined(stored: CurvatureData, fresh: CurvatureData) -> CurvatureData:
    """Returns the rows of both, with all that is measured."""
    numbers = sorted({*stored.number.tolist(), *fresh.number.tolist()})
    digests = {
        number: digest
        for data in (fresh, stored)
        for number, digest in zip(data.number.tolist(), data.sha256, strict=True)
    }
    joined = CurvatureData.empty(
        numbers,
        [digests[number] for number in numbers],
        pairs=fresh.eigenvalues.shape[1],
        density=cast("tuple[int, int]", fresh.density_nodes.shape[1:]),
        attributes={**stored.attributes, **fresh.attributes},
    )
    rows = np.searchsorted(joined.number, stored.number)
    for name, values in joined.columns.items():
        if stored.columns[name].shape[1:] == values.shape[1:]:
            values[rows] = stored.columns[name]
    joined.errors.update(stored.errors)
    joined.attributes["notes"] = list(
        dict.fromkeys([*(stored.attributes.get("notes") or ()), *fresh.attributes["notes"]])
    )
    if "created" in stored.attributes:
        joined.attributes["created"] = stored.attributes["created"]
    return joined


def left_to_measure(data: CurvatureData, weights: Held, settings: CurvatureSettings, path: AnyPath | None) -> list[int]:
    """Returns the numbers that are to be measured, or once more.

    Args:
        data: what is measured.
        weights: by their numbers.
        settings: what is asked for.
        path: of the file, if there is one.
    """
    todo = []
    for row, number in enumerate(data.number.tolist()):
        if number not in weights:
            continue
        lacks_vectors = settings.keep_vectors and (path is None or not has_vectors(path, data, row))
        if data.status[row] != PointStatus.MEASURED or lacks_vectors:
            todo.append(number)
    return todo


def forget_failed(data: CurvatureData, numbers: Iterable[int]) -> None:
    """Makes rows pending again."""
    for number in numbers:
        row = int(np.searchsorted(data.number, number))
        if data.status[row] == PointStatus.FAILED:
            data.status[row] = PointStatus.PENDING
            data.errors.pop(place_of(number), None)


def place_of(number: int) -> str:
    """Returns under which name a set of weights has its error."""
    return f"number/{number}"


def keep(data: CurvatureData, row: int, result: CurvatureResult) -> None:
    """Writes a result to its row."""
    number, values = int(data.number[row]), result.values
    if values is None:
        data.status[row] = PointStatus.FAILED
        data.errors[place_of(number)] = result.error or "no traceback"
        return
    data.loss[row], data.gradient_norm[row] = values.loss, values.gradient_norm
    data.products[row], data.forward_passes[row] = values.products, values.forward_passes
    data.eigenvalues[row], data.residuals[row] = values.eigenvalues, values.residuals
    data.angle_bound[row], data.converged[row] = values.angle_bounds, values.converged
    if values.trace is not None:
        data.trace[row], data.trace_low[row], data.trace_high[row] = (
            values.trace.value, values.trace.low, values.trace.high
        )  # fmt: skip
    if values.density is not None:
        data.density_nodes[row], data.density_weights[row] = values.density.nodes, values.density.weights
    data.attributes["notes"] = list(dict.fromkeys([*data.attributes["notes"], *_notes(data, number, values)]))
    data.status[row] = PointStatus.MEASURED
    data.errors.pop(place_of(number), None)


def _notes(data: CurvatureData, number: int, values: CurvatureValues) -> list[str]:
    unit = data.attributes["unit"]
    # What the values say of their own pairs is of this set of weights alone.
    return [f"{unit} {number}: {note}" if "eigenpairs" in note else note for note in values.notes]
