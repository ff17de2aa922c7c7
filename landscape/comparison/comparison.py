"""Comparison: what users hold in a notebook of which recipe is flatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from collectors.shapes import Float64
from collectors.validation import check_choice

from .. import figures
from ..record.record import ReadOnlyRecord
from .answers import Answers, RecipeMean, answer_pairs, band_of, recipe_means
from .data import MEASURES, RISE, ComparisonData, curves_of, left_out, measure_text, rows_of, values_of
from .facts import comparison_caption, summary_text


class Comparison(ReadOnlyRecord, ComparisonData):
    """The loss along the same lines through the networks of several recipes; everything it hands out is read-only.

    The method ``plot`` is ``figures.plot_comparison``; ``caption()`` returns what a paper says under it.

    Args:
        data: what was measured.
        path: the file it lies in; None for the one that ``data`` was read from, if any.
        report: what measuring it cost, if it was measured just now.

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
        errors: what failed, by place: "network/3" (the whole network), "network/3/direction/5" or
            "network/3/trace".
        attributes: everything else worth keeping, as JSON values: ``radius``, ``normalization``, ``confidence``,
            ``rise``, ``recipes`` (in order), ``paired`` (recipes whose networks are told apart by name),
            ``num_samples``, ``seed``, ``trace_lines``, ``measurement_plan``, ``notes``, ``identity``, ...
        path: the file it lies in, or None.
        report: what measuring it cost, or None.
    """

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes, in the order in which they were given."""
        return tuple(self.attributes["recipes"])

    @property
    def left_out(self) -> dict[str, str]:
        """The networks that do not count ("recipe name"), with the reason."""
        return {f"{self.recipe[row]} {self.name[row]}": reason for row, reason in left_out(self).items()}

    def table(self, measure: str = RISE) -> Answers:
        """Returns how each pair of recipes differs; printed, and in a notebook, it is a table.

        Args:
            measure: "rise_at_radius" (the mean over directions of how far the loss rises), "steepest_rise" (along the
                steepest of them), "radius_of_rise" (how far it is to a rise of ``rise``), "loss" (of the networks
                themselves) or "trace" (of the Hessian, if it was asked for).

        Raises:
            TypeError: the measure is no text.
            ValueError: it is unknown.
        """
        return answer_pairs(self, check_choice("measure", measure, tuple(MEASURES)))

    def means(self, measure: str = RISE) -> list[RecipeMean]:
        """Returns what the networks of each recipe give; the argument and the errors are those of ``table``."""
        return recipe_means(self, check_choice("measure", measure, tuple(MEASURES)))

    def values(self, measure: str = RISE) -> Float64[Any, " n"]:
        """Returns a measure of each network, NaN where there is none; otherwise as ``table``."""
        return values_of(self, check_choice("measure", measure, tuple(MEASURES)))

    def curves(self, recipe: str) -> Float64[Any, "networks points"]:
        """Returns how far the loss rises along the lines, the mean over directions, for each network that counts.

        Raises:
            TypeError: the recipe is no text.
            ValueError: it is unknown.
        """
        rows = rows_of(self, check_choice("recipe", recipe, self.recipes))
        return np.asarray(curves_of(self)[rows].mean(1))

    def band(self, recipe: str) -> tuple[Float64[Any, " points"], Float64[Any, " points"], Float64[Any, " points"]]:
        """Returns the mean of a recipe's curves over networks and directions, with its interval at each place.

        The ends are NaN for fewer than three networks; the errors are those of ``curves``.
        """
        return band_of(self, check_choice("recipe", recipe, self.recipes))

    def summary(self, measure: str = RISE) -> str:
        """Returns in words what each recipe gives and which one is flatter, and what more certainty would need.

        The argument and the errors are those of ``table``.
        """
        return summary_text(self, check_choice("measure", measure, tuple(MEASURES)))

    caption = comparison_caption
    plot = figures.plot_comparison

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.recipe.count(recipe)} of {recipe}" for recipe in self.recipes)
        what = measure_text(self, RISE)
        return f"Comparison({counts}; {what}: {'; '.join(answer.verdict for answer in self.table())})"
