"""The rows of a comparison file: what a run begins with, and what the file holds already."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from collectors.files.places import AnyPath
from collectors.weights.aligned import AlignedState
from workers.evaluator import EvaluatorDescription

from ..errors import LandscapeNotFoundError
from ..file.checks import PointStatus
from ..file.kind import COMPARISON
from ..file.whole_file import check_replaceable
from ..survey.experiment import check_identity, measured_attributes
from .blocks import block_names, block_sizes
from .comparison_file import read_comparison
from .data import ComparisonData
from .networks import Recipes
from .settings import ComparisonSettings

_PLACE = re.compile(r"network/(\d+)(.*)", re.DOTALL)
_OTHER_PAIRS = "Give another output= to keep both, or overwrite=True."


def begun_before(
    description: EvaluatorDescription,
    recipes: Recipes,
    states: Sequence[AlignedState],
    settings: ComparisonSettings,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    *,
    overwrite: bool,
) -> tuple[ComparisonData, bool]:
    """Returns what is measured already, and whether a file of this identity is there.

    Networks that the file holds beside those that are asked for stay, and count; a warning says so.

    Args:
        description: what the workers measure.
        recipes: who is compared.
        states: the weights of each.
        settings: along which lines.
        path: the comparison file, which need not exist; None for what is in memory only.
        attributes: what the file says beside what is known here.
        overwrite: whether what is there does not count.

    Raises:
        LandscapeIdentityError: the file holds another experiment.
        LandscapeError: the file cannot be read; the subclass says why.
    """
    fresh = _fresh(description, recipes, states, settings, attributes)
    if path is not None and overwrite:
        check_replaceable(path, COMPARISON)
    if path is None or overwrite:
        return fresh, False
    try:
        stored = read_comparison(path)
    except LandscapeNotFoundError:
        return fresh, False
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path, kind=COMPARISON)
    return _joined(stored, fresh), True


def forget_failed(data: ComparisonData, rows: Sequence[int]) -> None:
    """Makes the failed lines of networks pending again, so that they are tried once more."""
    for row in rows:
        failed = data.status[row] == PointStatus.FAILED
        data.status[row, failed] = PointStatus.PENDING
        for place in [place for place in data.errors if f"{place}/".startswith(f"network/{row}/")]:
            del data.errors[place]


def place_of(row: int, direction: int | None = None) -> str:
    """Returns under which name a network, or one of its lines, has its error."""
    return f"network/{row}" if direction is None else f"network/{row}/direction/{direction}"


def _fresh(
    description: EvaluatorDescription,
    recipes: Recipes,
    states: Sequence[AlignedState],
    settings: ComparisonSettings,
    attributes: Mapping[str, Any],
) -> ComparisonData:
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
    return ComparisonData.empty(
        [entry.recipe for entry in recipes.entries],
        [entry.name for entry in recipes.entries],
        [state.sha256() for state in states],
        settings.t,
        directions=settings.directions,
        block_size=block_sizes(description.num_samples, blocks),
        attributes={**attributes, **own},
    )


def _joined(stored: ComparisonData, fresh: ComparisonData) -> ComparisonData:
    """Returns the networks of both, with all that is measured; those of this run come first."""
    known = fresh.places
    further = [row for key, row in stored.places.items() if key not in known]
    recipes = list(dict.fromkeys([*fresh.attributes["recipes"], *(stored.recipe[row] for row in further)]))
    # A recipe that is taken from the file alone is paired if it was there.
    gone = set(stored.attributes["paired"]) - set(fresh.attributes["recipes"])
    names = _names(fresh, stored, further)
    joined = ComparisonData.empty(
        [*fresh.recipe, *(stored.recipe[row] for row in further)],
        names,
        [*fresh.sha256, *(stored.sha256[row] for row in further)],
        fresh.t,
        directions=max(fresh.status.shape[1], stored.status.shape[1]),
        block_size=fresh.block_size,
        attributes={
            **stored.attributes,
            **fresh.attributes,
            "recipes": recipes,
            "paired": [name for name in recipes if name in {*fresh.attributes["paired"], *gone}],
            "notes": list(dict.fromkeys([*(stored.attributes.get("notes") or ()), *fresh.attributes["notes"]])),
            **{name: stored.attributes[name] for name in ("created",) if name in stored.attributes},
        },
    )
    rows = {row: joined.places[key] for key, row in stored.places.items()}
    for name, values in joined.arrays.items():
        for row, place in rows.items():
            before = stored.arrays[name][row]
            if before.ndim:
                values[place, : len(before)] = before
            else:
                values[place] = before
    for label, text in stored.errors.items():
        found = _PLACE.fullmatch(label)
        if found is not None and int(found[1]) in rows:
            joined.errors[f"network/{rows[int(found[1])]}{found[2]}"] = text
    if further:
        shown = ", ".join(f"{stored.recipe[row]} {stored.name[row]}" for row in further[:8])
        warnings.warn(
            f"the file holds {len(further)} more networks than were given, which count too: {shown}"
            f"{', ...' if len(further) > 8 else ''}. {_OTHER_PAIRS}",
            stacklevel=5,
        )
    return joined


def _names(fresh: ComparisonData, stored: ComparisonData, further: Sequence[int]) -> list[str]:
    """Returns a name for each network, different from those of its recipe's others."""
    names = list(fresh.name)
    taken = set(zip(fresh.recipe, fresh.name, strict=True))
    for row in further:
        name = stored.name[row]
        while (stored.recipe[row], name) in taken:
            name = f"{name} before"
        taken.add((stored.recipe[row], name))
        names.append(name)
    return names
