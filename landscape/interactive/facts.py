"""The table of what a landscape is and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..figures.texts import network_name
from ..summary_text import (
    distance_text,
    explained_variance_text,
    failures,
    plan_text,
    points_text,
    samples_text,
    sampling_text,
    versions_text,
)

if TYPE_CHECKING:
    from ..surface import Landscape

_FAILURES = 5
_TEXTS = ("decomposition", "normalization", "centering", "seed", "buffers", "step_per_epoch")


def facts(landscape: Landscape) -> list[list[str]]:
    """Returns rows of name and text; what the file does not say is left out."""
    attributes = landscape.attributes
    low, high = landscape.loss_range
    rows: list[tuple[str, object]] = [
        ("file", landscape.path),
        ("network", network_name(landscape)),
        *((name.replace("_", " "), attributes.get(name)) for name in _TEXTS),
        ("samples", samples_text(attributes)),
        ("points", points_text(landscape)),
        ("complete", "yes" if landscape.complete else "no"),
        ("sampling", sampling_text(landscape)),
        ("loss", f"{low:.6g} to {high:.6g}" if math.isfinite(low) else "no finite value"),
        ("explained variance", _unless_dash(explained_variance_text(landscape))),
        ("cosine of the directions", None if landscape.cosine is None else f"{landscape.cosine:.3g}"),
        ("largest distance of the path from the plane", _distance(landscape)),
        ("measurement plan", plan_text(plan) if isinstance(plan := attributes.get("measurement_plan"), dict) else None),
        ("made", attributes.get("created")),
        ("versions", versions_text(found) if isinstance(found := attributes.get("versions"), Mapping) else found),
        *(("note", note) for note in attributes.get("notes", ())),
        *(("failed", text) for text in failures(landscape, _FAILURES)),
    ]
    return [[name, str(text)] for name, text in rows if text is not None and str(text)]


def _distance(landscape: Landscape) -> str | None:
    path = landscape.trajectory
    return None if path is None or not len(path.number) else distance_text(landscape)


def _unless_dash(text: str) -> str | None:
    return None if text == "-" else text
