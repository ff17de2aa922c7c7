"""What a comparison begins with: its lines and its identity, with nothing measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collectors.weights.aligned import AlignedState
from workers.evaluator import EvaluatorDescription

from ..survey.experiment import measured_attributes
from .blocks import block_names, block_sizes
from .data import ComparisonData
from .networks import Recipes
from .settings import ComparisonSettings


def nothing_measured(
    description: EvaluatorDescription,
    recipes: Recipes,
    states: Sequence[AlignedState],
    settings: ComparisonSettings,
    attributes: Mapping[str, Any],
) -> ComparisonData:
    """Returns a comparison before anything is measured, with its identity.

    Args:
        description: what the workers measure.
        recipes: who is compared.
        states: the weights of each.
        settings: along which lines.
        attributes: what the file says beside what is known here.
    """
    blocks = len(block_names(description.metrics))
    options = description.options
    buffers: dict[str, Any] = {"policy": options.buffers}
    if options.buffers == "recalibrate":
        buffers["batch_size"] = options.recalibration_batch_size
    lines = {"normalization": settings.normalization, "seed": settings.seed, "t": settings.t.tolist()}
    own = {
        **measured_attributes(description),
        "radius": settings.radius,
        "normalization": settings.normalization,
        "seed": settings.seed,
        "directions": settings.directions,
        "confidence": settings.confidence,
        "rise": settings.rise,
        "buffers": options.buffers,
        "weights": description.space.dimension,
        "recipes": list(recipes.names),
        "paired": list(recipes.paired),
        "notes": list(description.notes),
        "identity": {
            **({} if options.precision == "float32" else {"precision": options.precision}),
            **({"seed_each_point": options.seed} if options.seed_each_point else {}),
            "lines": lines,
            "samples": {"count": description.num_samples, "sha256": description.samples_sha256, "blocks": blocks},
            "buffers": buffers,
        },
    }
    known = {
        "recipe": [entry.recipe for entry in recipes.entries],
        "name": [entry.name for entry in recipes.entries],
        "sha256": [state.sha256() for state in states],
        "t": settings.t,
        "block_size": block_sizes(description.num_samples, blocks),
    }
    return ComparisonData.empty(known, {"direction": settings.directions}, {**attributes, **own})
