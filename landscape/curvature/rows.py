"""The rows of a curvature file: what a run begins with, what is left to do, and where results go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from collectors.files.places import AnyPath
from collectors.weights.aligned import AlignedState
from workers.curvature.measuring import CurvatureSettings, CurvatureValues
from workers.evaluator import EvaluatorDescription
from workers.pool import CurvatureResult

from ..file.checks import PointStatus
from ..survey.experiment import measured_attributes
from .data import CurvatureData
from .vectors_file import has_vectors

Held: TypeAlias = Mapping[int, AlignedState]
"""Sets of weights by their numbers."""

_ASKED = ("top", "bottom", "trace_probes", "density_probes", "tolerance", "max_products", "seed")


def nothing_measured(
    description: EvaluatorDescription, weights: Held, settings: CurvatureSettings, attributes: Mapping[str, Any]
) -> CurvatureData:
    """Returns the curvature before anything is measured, with its identity.

    Args:
        description: what the workers measure.
        weights: by their numbers.
        settings: what is measured.
        attributes: what the file says beside what is known here.
    """
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
    sizes = {"pair": settings.top + settings.bottom}
    if settings.density_probes:
        sizes |= {"probe": settings.density_probes, "step": settings.density_steps}
    digests = [weights[number].sha256() for number in numbers]
    return CurvatureData.empty({"number": numbers, "sha256": digests}, sizes, {**attributes, **own})


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


def keep(data: CurvatureData, row: int, result: CurvatureResult) -> None:
    """Writes a result to its row."""
    number, values = int(data.number[row]), result.values
    if values is None:
        data.status[row] = PointStatus.FAILED
        data.errors[data.place_of(row)] = result.error or "no traceback"
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
    data.errors.pop(data.place_of(row), None)


def _notes(data: CurvatureData, number: int, values: CurvatureValues) -> list[str]:
    unit = data.attributes["unit"]
    # What the values say of their own pairs is of this set of weights alone.
    return [f"{unit} {number}: {note}" if "eigenpairs" in note else note for note in values.notes]
