"""Which of several recipes ended flatter, as a comparison of several runs of each says."""

from __future__ import annotations

import math

from ..comparison.answers import EFFECT, INCONCLUSIVE, NO_INTERVAL, Answer
from ..comparison.comparison import Comparison
from .measuring import Findings
from .statement import Found, Number, Statement, Unknown, plus_minus

RECIPES = "recipes"


def answer_recipes(findings: Findings) -> Found:
    comparison = findings.comparison
    if comparison is None:
        return [Unknown(f"not known: {findings.missing['comparison']}")], []
    means = {item.recipe: item.mean for item in comparison.means()}
    radius = comparison.attributes["radius"]
    statements, verdicts = [], []
    for place, answer in enumerate(comparison.table()):
        number = _number(comparison, answer, place)
        rises = " and ".join(f"{means[name]:.3g} around those of {name}" for name in (answer.first, answer.second))
        text = (
            f"To the radius {radius:g} along random lines through the networks, the loss rises on average by {rises}: "
            f"a difference of {plus_minus(number)}"
        )
        reason = f"; {answer.reason.rstrip('.')}" if answer.reason else ""
        needed = ""
        if answer.needed is not None:
            needed = f" A difference of {100 * EFFECT:g} % would show in 4 of 5 cases with {answer.needed} of each."
        statements.append(Statement(f"{text}{reason}.{needed}", number, RECIPES))
        undecided = {INCONCLUSIVE: "the interval of the difference holds 0", NO_INTERVAL: answer.reason}
        why = undecided.get(answer.verdict)
        unknown = Unknown(f"not known for {answer.first} and {answer.second}: {why}")
        verdicts.append(answer.verdict if why is None else unknown)
    return verdicts, statements


def _number(comparison: Comparison, answer: Answer, place: int) -> Number:
    """Returns the difference of a pair; its formula is a call, as statistics over networks are no single line."""
    call = f"Comparison.load(file).table()[{place}]"
    ends = ("", "") if math.isnan(answer.low) else (f"{call}.low", f"{call}.high")
    kind = f"{100 * answer.confidence:.4g} % interval, {answer.method}" if answer.method else answer.reason
    file = "" if comparison.path is None else comparison.path.name
    difference = (answer.difference, answer.low, answer.high)
    return Number(*difference, kind, file, {"loss": "loss"}, f"{call}.difference", *ends)
