"""Comparison: what users hold in a notebook of which recipe is flatter, and what it says in words and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from collectors.shapes import Float64
from collectors.validation import check_choice

from .. import figures
from ..caption_sentences import capital, count_text, joined
from ..captions import Caption
from ..curvature.facts import record_json, record_text
from ..record.record import ReadOnlyRecord
from .answers import (
    BOOTSTRAP,
    EFFECT,
    INCONCLUSIVE,
    OF_ONE_EACH,
    PAIRED,
    WELCH,
    Answer,
    Answers,
    RecipeMean,
    answer_pairs,
    band_of,
    p_text,
    recipe_means,
)
from .data import MEASURES, RISE, TRACE, ComparisonData, curves_of, left_out, measure_text, rows_of, values_of

COMPARISON_SUMMARY_VERSION = 1  # grows as ``SUMMARY_VERSION`` does, for ``comparison_json``
_MOST = 20
_WITHOUT_DIRECTIONS = ("loss", TRACE)


def comparison_text(data: ComparisonData) -> str:
    attributes = data.attributes
    lines = (
        f"{attributes['directions']} directions of {len(data.t)} points to radius {attributes['radius']:g}, "
        f'normalization "{attributes["normalization"]}"'
    )
    recipes = ", ".join(f"{item.recipe} ({item.networks})" for item in recipe_means(data))
    return f"{record_text(data, [('recipes', recipes), ('lines', lines)])}\n\n{summaries_text(data)}"


def summaries_text(data: ComparisonData) -> str:
    """Returns what is said of a comparison as a whole: its rise and, where it was measured, the trace."""
    measures = [RISE, *([TRACE] if np.isfinite(data.trace).any() else [])]
    return "\n\n".join(summary_text(data, measure) for measure in measures)


def summary_text(data: ComparisonData, measure: str = RISE) -> str:
    attributes, means, answers = data.attributes, recipe_means(data, measure), answer_pairs(data, measure)
    count = attributes.get("num_samples")
    over = "all samples" if count is None else f"{count:,} samples"
    what = measure_text(data, measure)
    directions = "" if measure in _WITHOUT_DIRECTIONS else f"{attributes['directions']} directions, "
    lines = [f"{capital(what)} ({directions}{over})"]
    width = max(len(item.recipe) for item in means)
    lines += [f"  {item.recipe:<{width}}  {_mean_text(item)}" for item in means]
    lines += [text for answer in answers for text in _answer_lines(answer, answers)]
    if measure == RISE:
        lines += _spread_lines(means, int(attributes["directions"]))
    out = left_out(data, measure)
    lines += [f"left out: {data.recipe[row]} {data.name[row]}: {reason}" for row, reason in list(out.items())[:_MOST]]
    if len(out) > _MOST:
        lines.append(f"and {len(out) - _MOST} more are left out")
    return "\n".join(lines)


def comparison_caption(data: ComparisonData) -> Caption:
    """Returns what a paper says under ``plot``."""
    known, means, answers = data.attributes, recipe_means(data), answer_pairs(data)
    recipes = ", ".join(f"{item.recipe} ({_networks_text(item)})" for item in means)
    directions = f"{known['directions']} random direction{'' if known['directions'] == 1 else 's'}"
    over = "networks" if known["directions"] == 1 else "networks and directions"
    bands = f"Bands: {100 * known['confidence']:g} % intervals of the mean over {over}"
    text = [
        f"Rise of the loss around the networks of {recipes}: the mean over {directions} of each "
        f'(normalization "{known["normalization"]}"), to radius {known["radius"]:g} in lengths of the direction',
        "" if all(math.isnan(item.low) for item in means) else bands,
        f"Measured on {count_text(known, known.get('num_samples'))}",
    ]
    what = measure_text(data, RISE)
    alt = [
        f"A curve for each recipe. {capital(what)}: "
        + "; ".join(f"{item.recipe} {_mean_text(item)}" for item in means),
        *(_answer_lines(answer, answers)[0] for answer in answers),
    ]
    return Caption(joined(text), joined(alt))


def comparison_json(data: ComparisonData) -> dict[str, Any]:
    """Returns the facts of ``record_json``, whose points are lines, and what the comparison says.

    Its further names: ``networks`` (``recipe``, ``name``, ``sha256``, ``left_out`` with a reason or null, and every
    measure), ``recipes`` and ``answers`` (by measure, the attributes of ``RecipeMean`` and ``Answer``).
    """
    out = left_out(data)
    values = {name: values_of(data, name) for name in MEASURES}
    measured = {name: numbers for name, numbers in values.items() if np.isfinite(numbers).any()}
    facts = {
        "networks": [
            {
                "recipe": recipe,
                "name": data.name[row],
                "sha256": data.sha256[row],
                "left_out": out.get(row),
                **{name: float(numbers[row]) for name, numbers in measured.items()},
            }
            for row, recipe in enumerate(data.recipe)
        ],
        "recipes": {name: [asdict(item) for item in recipe_means(data, name)] for name in measured},
        "answers": {name: [asdict(item) for item in answer_pairs(data, name)] for name in measured},
    }
    return record_json(data, COMPARISON_SUMMARY_VERSION, facts)


def _networks_text(item: RecipeMean) -> str:
    return f"{item.networks} network{'' if item.networks == 1 else 's'}"


def _mean_text(item: RecipeMean) -> str:
    networks = _networks_text(item)
    if math.isnan(item.mean):
        return f"nothing to say, {networks}"
    interval = "" if math.isnan(item.low) else f" ({item.low:.4g} to {item.high:.4g})"
    return f"{item.mean:.4g}{interval}, {networks}"


def _answer_lines(answer: Answer, answers: Answers) -> list[str]:
    name = f"{answer.first} - {answer.second}"
    if math.isnan(answer.low):
        difference = "" if math.isnan(answer.difference) else f" {answer.difference:+.3g},"
        return [f"{name}:{difference} no interval: {answer.reason}."]
    # A pair without an interval has no p-value, and counts nothing in the correction.
    pairs = sum(not math.isnan(each.low) for each in answers)
    corrected = f", corrected for {pairs} pairs" if pairs > 1 else ""
    p_value = p_text(answer.p_value)
    lines = [
        f"{name}: {answer.difference:+.3g} ({answer.low:+.3g} to {answer.high:+.3g}, {100 * answer.confidence:.4g} %), "
        f"p {'' if p_value.startswith('<') else '= '}{p_value} ({answer.method}{corrected}): {answer.verdict}"
        + (", because the interval holds 0." if answer.verdict == INCONCLUSIVE else ".")
    ]
    if answer.reason:
        lines.append(f"  {capital(answer.reason)}")
    if answer.needed is not None or answer.method in (WELCH, PAIRED, BOOTSTRAP):
        lines.append(f"  {what_shows(answer)}")
    return lines


def what_shows(answer: Answer) -> str:
    """Returns how many networks or directions would show a difference of 10 %, in a sentence."""
    if answer.needed is None:
        what, remedy = ("directions", "samples") if answer.method == BOOTSTRAP else ("networks", "directions")
        return f"More {what} alone would not show a difference of {100 * EFFECT:g} %; measure more {remedy}."
    unit = "directions" if answer.method in OF_ONE_EACH else "networks of each recipe"
    return f"With {answer.needed} {unit} at least, a difference of {100 * EFFECT:g} % would show in 4 of 5 cases."


def _spread_lines(means: list[RecipeMean], directions: int) -> list[str]:
    """Returns of each recipe how much its networks differ, and how much of that is which directions were drawn."""
    measured = [item for item in means if not math.isnan(item.spread) and not math.isnan(item.direction_spread)]
    return [
        f"{item.recipe}: spread between networks {item.spread:.3g}, between the directions of one network "
        f"{item.direction_spread:.3g}. {_from_directions(item.directions_needed, directions)}"
        for item in measured
    ]


def _from_directions(needed: int | None, directions: int) -> str:
    if needed is None:
        return (
            f"Most of that spread's variance comes from which {directions} directions were drawn: with more, the "
            "interval is shorter on average."
        )
    if needed <= directions:
        return "At most a tenth of that spread's variance comes from which directions were drawn."
    return f"With {needed} directions, a tenth of that spread's variance would come from which of them are drawn."


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
