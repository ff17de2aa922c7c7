"""What a curvature file holds, in words: as text and as JSON for programs (``landscape info``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_choice
from workers.measurement_plan import plan_text

from ..caption_sentences import capital, count_text, joined
from ..captions import Caption
from ..drawing.sheet import unconverged
from ..drawing.texts import residual_text
from ..errors import error_message
from ..facts import as_lines, samples_text, versions_text
from ..figures.spectrum import find_row
from ..record.checks import PointStatus
from ..record.identity import REDUCTION
from ..record.record import Record
from ..summary_json import as_json
from .data import MATRIX_NAMES, CurvatureData

CURVATURE_SUMMARY_VERSION = 1  # grows as ``SUMMARY_VERSION`` does, for ``curvature_json``

Rows: TypeAlias = Sequence[tuple[str, object]]
_MOST_ROWS = 30
_MOST_VALUES = 6
_MOST_FAILURES = 10


def curvature_text(curvature: CurvatureData) -> str:
    known, unit = curvature.attributes, str(curvature.attributes["unit"])
    matrix = f"{_matrix(known)}, {known['weights']} trainable weights"
    found: list[tuple[str, object]] = [
        ("eigenvalues", _asked(known)),
        *(
            (f"{unit} {curvature.number[row]}", _row(curvature, row))
            for row in evenly_chosen(len(curvature.number), _MOST_ROWS)
            if curvature.status[row] == PointStatus.MEASURED
        ),
        ("density", _density(curvature)),
        ("products", f"{curvature.products.sum()} in all, about as long as {curvature.forward_passes.sum()} losses"),
    ]
    failed = [("failed", text) for text in failures(curvature)[:_MOST_FAILURES]]
    return record_text(curvature, [("matrix", matrix)], found, failed)


def record_text(record: Record, about: Rows, found: Rows = (), last: Rows = ()) -> str:
    known, counts = record.attributes, record.status_counts
    rows = [
        ("file", record.path),
        ("network", known.get("network")),
        *about,
        ("measured", ", ".join(f"{count} {status.name.lower()}" for status, count in counts.items() if count)),
        ("complete", "yes" if record.complete else "no; the call that made it continues from here"),
        *found,
        ("samples", samples_text(known)),
        ("seed", known.get("seed")),
        ("measured in", plan_text(known.get("measurement_plan"))),
        ("made", known.get("created")),
        ("versions", versions_text(known.get("versions"))),
        *(("note", note) for note in known.get("notes") or ()),
        *last,
    ]
    return as_lines([(name, str(value)) for name, value in rows if value is not None and str(value)])


def curvature_json(curvature: CurvatureData) -> dict[str, Any]:
    """Returns the facts of ``record_json``, and by the name of each column a list with a value for each set of weights.

    ``density`` has ``probes`` and ``steps`` in place of the columns of the density.
    """
    others = ("status", "converged", "density_nodes", "density_weights")
    columns = {name: values for name, values in curvature.columns.items() if name not in others}
    found = {
        "status": [PointStatus(value).name.lower() for value in curvature.status.tolist()],
        **columns,
        "converged": curvature.converged.astype(bool),
        "density": dict(zip(("probes", "steps"), curvature.density_nodes.shape[1:], strict=True)),
    }
    return record_json(curvature, CURVATURE_SUMMARY_VERSION, found)


def record_json(record: Record, version: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts as JSON values; null stands for NaN, for infinities, and for what is absent.

    Its names: ``summary_version``, ``kind`` ("curvature", ...), ``file``, ``complete``, ``points`` (how many have each
    status), those of ``found``, ``errors`` (places), and ``attributes`` as the file has them.
    """
    facts = {
        "summary_version": version,
        "kind": record.kind.word,
        "file": None if record.path is None else str(record.path),
        "complete": record.complete,
        "points": {status.name.lower(): count for status, count in record.status_counts.items()},
        **found,
        "errors": sorted(record.errors),
        "attributes": record.attributes,
    }
    plain: dict[str, Any] = as_json(facts)
    return plain


def curvature_caption(
    curvature: CurvatureData, kind: str = "sharpness", number: int | None = None, learning_rate: Any = None
) -> Caption:
    """Returns what a paper says under ``plot_sharpness`` or, with "spectrum", under ``plot_spectrum``."""
    check_choice("kind", kind, ("sharpness", "spectrum"))
    known, unit, all_numbers = curvature.attributes, str(curvature.attributes["unit"]), curvature.number
    network = f" of {known['network']}" if known.get("network") else ""
    weights = f"{known['weights']:,} trainable weights"
    matrix = f"the {_matrix(known)}{network}, with {weights}"
    measured_on = f"Measured on {count_text(known, known.get('num_samples'))}"
    left, loose = curvature.status != PointStatus.MEASURED, unconverged(curvature).sum(1)
    if kind == "spectrum":
        row = find_row(curvature, number)
        probes = _density(curvature)
        text = [
            f"Eigenvalues of {matrix}, at {unit} {all_numbers[row]}",
            f"Density: stochastic Lanczos quadrature, {probes}" if probes else "",
            f"Ticks (bars are their residuals, where these can be seen): {_asked(known)}{_loose(loose[row])}"
            if _ends(known)
            else "",
            measured_on,
        ]
        values, errors = curvature.eigenvalues[row], curvature.residuals[row]
        ends = [f"{name} eigenvalue is {values[place]:.4g} ± {errors[place]:.1g}" for name, place in _ends(known)]
        shown = "A density over eigenvalues" if probes else "Ticks at eigenvalues"
        return Caption(joined(text), joined([shown, *ends]))
    rates = known.get("learning_rate") if learning_rate is None else learning_rate
    where = f"{len(all_numbers)} checkpoints ({unit}s {all_numbers[0]} to {all_numbers[-1]})"
    if len(all_numbers) == 1:
        where = f"{unit} {all_numbers[0]}"
    count = loose.sum()
    hollow = f"{_loose(count)} and {'is' if count == 1 else 'are'} hollow" if count else ""
    text = [
        f"Sharpness of {matrix}, at {where}",
        capital(_asked(known)) + hollow if _ends(known) else "",
        "The trace has its 95 % interval" if np.isfinite(curvature.trace_low).any() else "",
        "" if rates is None else "The dashed line is 2 / learning rate, gradient descent's limit (Cohen et al. 2021)",
        f"Not measured: {unit} {', '.join(map(str, all_numbers[left]))}" if left.any() else "",
        measured_on,
    ]
    curves = {f"{name} eigenvalue": curvature.eigenvalues[:, place] for name, place in _ends(known)}
    curves["The trace"] = curvature.trace
    alt = ["Curves over checkpoints", *(_course(name, values, curvature) for name, values in curves.items())]
    return Caption(joined(text), joined(alt))


def _matrix(known: Any) -> str:
    return f"{MATRIX_NAMES[known['matrix']]} of the {'summed' if known.get(REDUCTION) == 'sum' else 'mean'} loss"


def _ends(known: Any) -> list[tuple[str, int]]:
    ends = (("The largest", 0, known["top"]), ("The lowest", known["top"], known["bottom"]))
    return [(name, place) for name, place, count in ends if count]


def _course(name: str, values: NDArray[Any], curvature: CurvatureData) -> str:
    """Returns where a curve begins, is highest and ends; empty where it has no value."""
    unit, rows = curvature.attributes["unit"], np.flatnonzero(np.isfinite(values))
    if not len(rows):
        return ""
    first, last, highest = rows[0], rows[-1], rows[np.argmax(values[rows])]
    at = {row: f"{values[row]:.4g} at {unit} {curvature.number[row]}" for row in (first, last, highest)}
    between = "" if highest in (first, last) else f", and is highest with {at[highest]}"
    return f"{name} is {at[first]}" if first == last else f"{name} goes from {at[first]} to {at[last]}{between}"


def failures(curvature: CurvatureData) -> list[str]:
    """Returns where measuring failed and what was raised there, without the traceback."""
    unit = curvature.attributes["unit"]
    return [
        f"{unit} {place.partition('/')[2]}: {error_message(text)}" for place, text in sorted(curvature.errors.items())
    ]


def _asked(known: Any) -> str:
    parts = [f"the {known[name]} {word}" for name, word in (("top", "largest"), ("bottom", "lowest")) if known[name]]
    tolerance = known.get("tolerance")
    found = " and ".join(parts) or "none"
    if tolerance is None or not parts:
        return found
    return f"{found}, searched to a tolerance of {tolerance:g} (of itself, or of a thousandth of the largest)"


def _loose(count: int) -> str:
    return f"; {count} did not get so exact" if count else ""


def counted(count: int, unit: str) -> str:
    return f"{count} {unit}{'s' if count > 1 else ''}"


def evenly_chosen(count: int, most: int) -> list[int]:
    """Returns places from 0 to ``count`` - 1: all, or ``most`` evenly chosen ones with the first and the last."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most))})


def _row(curvature: CurvatureData, row: int) -> str:
    values = curvature.eigenvalues[row].tolist()
    marks = ["" if done else "?" for done in curvature.converged[row]]
    errors = map(residual_text, curvature.residuals[row])
    texts = [f"{value:.4g}{error}{mark}" for value, error, mark in zip(values, errors, marks, strict=True)]
    parts = [f"loss {curvature.loss[row]:.4g}"]
    top = int(curvature.attributes["top"])
    for word, ends in (("eigenvalues", texts[:top]), ("lowest", texts[top:])):
        if ends:
            parts.append(f"{word} {', '.join([*ends[:_MOST_VALUES], *(['...'] if len(ends) > _MOST_VALUES else [])])}")
        if word == "lowest" and len(ends) > 1 and np.isfinite(values[top:]).all():
            negative = int((curvature.eigenvalues[row] < -curvature.residuals[row])[top:].sum())
            parts[-1] += f" ({'all' if negative == len(ends) else negative} of these {len(ends)} negative)"
    if np.isfinite(curvature.trace[row]):
        low, high = curvature.trace_low[row], curvature.trace_high[row]
        known = np.isfinite([low, high]).all()
        interval = f" (95 % interval {low:.4g} to {high:.4g})" if known else " (of one probe, without an interval)"
        parts.append(f"trace {curvature.trace[row]:.4g}{interval}")
    unsure = " (? = not within the tolerance)" if any(marks) else ""
    return "; ".join(parts) + unsure


def _density(curvature: CurvatureData) -> str | None:
    probes, steps = curvature.density_nodes.shape[1:]
    return f"{probes} probes of {steps} products" if probes else None
