"""What a comparison says, in words: as text and as JSON for programs (``landscape info``)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from ..caption_sentences import capital, count_text, joined
from ..captions import Caption
from ..curvature.facts import record_json, record_text
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
    p_text,
    recipe_means,
)
from .data import MEASURES, RISE, TRACE, ComparisonData, left_out, measure_text, values_of

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
    """Returns the facts as JSON values; null stands for NaN, for infinities, and for what is absent.

    Its names: ``summary_version``, ``kind`` ("comparison"), ``file``, ``complete``, ``points`` (how many lines have
    each status), ``networks`` (``recipe``, ``name``, ``sha256``, ``left_out`` with a reason or null, and every
    measure), ``recipes`` and ``answers`` (by measure, the attributes of ``RecipeMean`` and ``Answer``), ``errors``
    (places), and ``attributes`` as the file has them.
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
