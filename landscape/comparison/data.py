"""What a comparison file holds, in memory: the loss along lines through networks, which the survey fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.validation import check_float, check_instance, check_int

from ..file.checks import PointStatus, check_array, check_axis, check_status

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8

    from collectors.files.places import AnyPath

SCALARS = ("trace", "trace_low", "trace_high")
"""Names of the columns of numbers, float64[n]."""
TRACE_LINES = "trace_lines"
"""The attribute that says of how many lines each network's trace was made, by the SHA-256 of its weights."""
_MOST_SAMPLES = 2**53


@dataclass(eq=False, repr=False)
class ComparisonData:
    """The loss along the same lines through n networks; NaN where it is not measured.

    Attributes:
        recipe: of each network, n of them.
        name: of each network, different from those of its recipe's others, n of them. Pairs have the same.
        sha256: of each network's weights, n of them.
        t: places on a line, the network itself at 0 in the middle, in lengths of the direction, float64[points].
        status: ``PointStatus`` of each line, uint8[n, directions].
        loss: along each line, float64[n, directions, points].
        block_rise: the rise from the network to the ends of a line, their mean, for each block of samples; float64[n,
            directions, blocks]. There are no blocks where several networks say how well a recipe is known.
        block_size: samples of each block, float64[blocks].
        trace: of the loss's Hessian, where it was asked for, float64[n].
        trace_low: lower end of its interval, float64[n].
        trace_high: upper end, float64[n].
        errors: what failed, by place: "network/3" (the whole network) or "network/3/direction/5".
        attributes: everything else worth keeping, as JSON values: ``radius``, ``normalization``, ``confidence``,
            ``rise``, ``recipes`` (in order), ``paired`` (recipes whose networks are told apart by name),
            ``num_samples``, ``seed``, ``trace_lines``, ``measurement_plan``, ``notes``, ``identity``, ...
        path: the file that it was read from, or None.
    """

    recipe: tuple[str, ...]
    name: tuple[str, ...]
    sha256: tuple[str, ...]
    t: Float64[np.ndarray, " points"]
    status: UInt8[np.ndarray, "n directions"]
    loss: Float64[np.ndarray, "n directions points"]
    block_rise: Float64[np.ndarray, "n directions blocks"]
    block_size: Float64[np.ndarray, " blocks"]
    trace: Float64[np.ndarray, " n"]
    trace_low: Float64[np.ndarray, " n"]
    trace_high: Float64[np.ndarray, " n"]
    errors: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    path: AnyPath | None = None

    @classmethod
    def empty(
        cls,
        recipe: Sequence[str],
        name: Sequence[str],
        sha256: Sequence[str],
        t: Float64[np.ndarray, " points"],
        *,
        directions: int,
        block_size: Float64[np.ndarray, " blocks"],
        attributes: Mapping[str, Any],
    ) -> ComparisonData:
        """Returns n networks of which nothing is measured; the arguments are the attributes of that name."""
        shape = (len(recipe), directions)
        return cls(
            recipe=tuple(recipe),
            name=tuple(name),
            sha256=tuple(sha256),
            t=t,
            status=np.zeros(shape, np.uint8),
            loss=np.full((*shape, len(t)), np.nan),
            block_rise=np.full((*shape, len(block_size)), np.nan),
            block_size=block_size,
            trace=np.full(shape[0], np.nan),
            trace_low=np.full(shape[0], np.nan),
            trace_high=np.full(shape[0], np.nan),
            attributes=dict(attributes),
        )

    @property
    def complete(self) -> bool:
        """Whether nothing is pending."""
        return not (self.status == PointStatus.PENDING).any()

    @property
    def status_counts(self) -> dict[PointStatus, int]:
        """How many lines have each status."""
        return {status: int((self.status == status).sum()) for status in PointStatus}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays with a row for each network, by their names."""
        return {name: getattr(self, name) for name in ("status", "loss", "block_rise", *SCALARS)}

    @property
    def trace_lines(self) -> Mapping[str, int]:
        """Of how many lines the traces were made, by the SHA-256 of the networks' weights."""
        found = self.attributes.get(TRACE_LINES)
        return found if isinstance(found, Mapping) else {}

    @property
    def places(self) -> dict[tuple[str, str], int]:
        """The row of each network, by its recipe and the SHA-256 of its weights."""
        return {key: row for row, key in enumerate(zip(self.recipe, self.sha256, strict=True))}

    def validate(self) -> None:
        """Checks that shapes, types and values fit together.

        Raises:
            TypeError: an attribute that is computed with has the wrong type.
            ValueError: something does not fit; the text names it, what was expected and what came.
        """
        count, points = len(self.recipe), len(self.t)
        if not count or {len(self.name), len(self.sha256)} != {count}:
            raise ValueError(f"there must be {max(count, 1)} recipes, names and digests, one for each network.")
        for label, own in (("name", self.name), ("sha256", self.sha256)):
            if len(set(zip(self.recipe, own, strict=True))) < count:
                raise ValueError(f"{label} must tell the networks of a recipe apart, but two are the same.")
        check_axis("t", self.t)
        if points < 3 or points % 2 == 0 or self.t[points // 2] != 0:
            raise ValueError(f"t must be an odd number of places, at least 3, with 0 in the middle, but got {self.t}.")
        directions = self.status.shape[1] if self.status.ndim == 2 else -1
        check_status("status", self.status, (count, directions))
        check_array("loss", self.loss, (count, directions, points), np.float64)
        check_array("block_size", self.block_size, (len(self.block_size),), np.float64)
        check_array("block_rise", self.block_rise, (count, directions, len(self.block_size)), np.float64)
        if not ((self.block_size > 0) & (self.block_size < _MOST_SAMPLES)).all():
            raise ValueError(f"block_size must be numbers of samples above 0, but got {self.block_size[:6]}.")
        for label in SCALARS:
            check_array(label, getattr(self, label), (count,), np.float64)
        known = self.attributes
        for label in ("radius", "confidence", "rise"):
            check_float(label, known.get(label))
        check_int("seed", known.get("seed"), minimum=0)
        check_int("directions", known.get("directions"), minimum=1, maximum=max(directions, 1))
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
