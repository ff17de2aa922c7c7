"""What a comparison file holds, in memory: the loss along lines through networks, which the survey fills."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from collectors.validation import check_float, check_instance, check_int

from ..record.checks import check_axis
from ..record.kind import COMPARISON
from ..record.record import Record, column

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8

TRACE_LINES = "trace_lines"
"""The attribute that says of how many lines each network's trace was made, by the SHA-256 of its weights."""
_MOST_SAMPLES = 2**53
_NAMED = 8
_OTHER_PAIRS = "Give another output= to keep both, or overwrite=True."
_LINE = ("network", "direction")


class ComparisonData(Record, kind=COMPARISON, coordinates=("t",), key=("recipe", "sha256")):
    """The loss along lines through n networks, in arrays that ``Comparison`` explains; NaN where not measured."""

    t: Float64[np.ndarray, " points"] = column("t")
    loss: Float64[np.ndarray, "n directions points"] = column(*_LINE, "t")
    status: UInt8[np.ndarray, "n directions"] = column(*_LINE, dtype=np.uint8)
    recipe: tuple[str, ...] = column("network", dtype=str, place="network/recipe")
    name: tuple[str, ...] = column("network", dtype=str, place="network/name")
    sha256: tuple[str, ...] = column("network", dtype=str, place="network/sha256")
    trace: Float64[np.ndarray, " n"] = column("network", place="network/trace")
    trace_low: Float64[np.ndarray, " n"] = column("network", place="network/trace_low")
    trace_high: Float64[np.ndarray, " n"] = column("network", place="network/trace_high")
    block_rise: Float64[np.ndarray, "n directions blocks"] = column(*_LINE, "block", place="blocks/rise")
    block_size: Float64[np.ndarray, " blocks"] = column("block", place="blocks/size")

    @property
    def trace_lines(self) -> Mapping[str, int]:
        """Of how many lines the traces were made, by the SHA-256 of the networks' weights."""
        found = self.attributes.get(TRACE_LINES)
        return found if isinstance(found, Mapping) else {}

    def validate(self) -> None:
        """Checks that shapes, types, values and attributes fit together; the errors are those of ``Record``."""
        super().validate()
        count, points = len(self.recipe), len(self.t)
        for label, texts in (("name", self.name), ("sha256", self.sha256)):
            if len(set(zip(self.recipe, texts, strict=True))) < count:
                raise ValueError(f"{label} must tell the networks of a recipe apart, but two are the same.")
        check_axis("t", self.t)
        if points < 3 or points % 2 == 0 or self.t[points // 2] != 0:
            raise ValueError(f"t must be an odd number of places, at least 3, with 0 in the middle, but got {self.t}.")
        if not ((self.block_size > 0) & (self.block_size < _MOST_SAMPLES)).all():
            raise ValueError(f"block_size must be numbers of samples above 0, but got {self.block_size[:6]}.")
        known = self.attributes
        for label in ("radius", "confidence", "rise"):
            check_float(label, known.get(label))
        check_int("seed", known.get("seed"), minimum=0)
        check_int("directions", known.get("directions"), minimum=1, maximum=max(self.status.shape[1], 1))
        check_instance("normalization", known.get("normalization"), str, "a str")
        if known.get("num_samples") is not None:
            check_int("num_samples", known["num_samples"], minimum=0)
        if not 0 < known["confidence"] < 1:
            raise ValueError(f"confidence must be between 0 and 1, but got {known['confidence']}.")
        for label in ("recipes", "paired"):
            items: Any = known.get(label)
            for item in check_instance(label, items, list, "a list of recipes"):
                check_instance(label, item, str, "a list of recipes")
        if sorted(known["recipes"]) != sorted(set(self.recipe)):
            raise ValueError(f"recipes must be those of the networks, but got {known['recipes']}.")

    def joined(self, stored: Self) -> Self:
        """Returns both records' networks; a warning names those of the file that were not given."""
        joined = super().joined(stored)
        further = range(len(self.recipe), len(joined.recipe))
        names = list(self.name)
        for row in further:
            recipe, name = joined.recipe[row], joined.name[row]
            while (recipe, name) in zip(joined.recipe, names, strict=False):
                name = f"{name} before"
            names.append(name)
        joined.name = tuple(names)
        given, before = self.attributes, stored.attributes
        recipes = list(dict.fromkeys([*given["recipes"], *joined.recipe]))
        # A recipe of which only the file has networks is paired if it was so there.
        paired = {*given["paired"], *(set(before["paired"]) - set(given["recipes"]))}
        joined.attributes |= {"recipes": recipes, "paired": [name for name in recipes if name in paired]}
        if further:
            shown = ", ".join(f"{joined.recipe[row]} {names[row]}" for row in further[:_NAMED])
            warnings.warn(
                f"the file holds {len(further)} more networks than were given, which count too: {shown}"
                f"{', ...' if len(further) > _NAMED else ''}. {_OTHER_PAIRS}",
                stacklevel=6,
            )
        return joined
