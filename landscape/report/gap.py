"""How far other data sets, such as the test samples, are from those of the training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workers.metric_names import MetricName, name_in_set, other_datasets

from ..drawing.texts import main_dataset, unit_of
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from .measuring import Findings
from .statement import Answer, Evidence, Number, Statement, Unknown, few_samples, plus_minus, too_few

GAP = "gap"
_QUESTION = "How large is the gap between training and test?"


def answer_gap(findings: Findings) -> Answer:
    """Answers from the losses of a run's checkpoints on every data set."""
    landscape = findings.path
    found = None if landscape is None else landscape.checkpoints
    names = () if landscape is None else tuple(other_datasets(landscape.metrics))
    if landscape is None or found is None or not found.paths or not names:
        reason = "callback_fn returns one data set" if landscape is not None else "the path was not measured"
        return Answer.of(GAP, _QUESTION, [Unknown(f"not known: {reason}")])
    evidence, last = Evidence.of_landscape(landscape, names), int(found.paths[0][-1])
    unit, main = unit_of(landscape), main_dataset(landscape)
    others = main or "the training samples"
    statements: list[Statement] = []
    verdicts: list[str] = []
    for name in names:
        loss = found.metrics[name_in_set("loss", name)]
        if not np.isfinite([loss[last], found.metrics["loss"][last]]).all():
            verdicts.append(Unknown(f"not known for {name}: its loss at the end is not finite"))
            continue
        gap = _difference(evidence, [(name, last, 1), ("", last, -1)])
        text = (
            f"At {unit} {found.number[last]} the loss on {name}, {loss[last]:.4g}, less that on {others}, "
            f"{found.metrics['loss'][last]:.4g}, is {plus_minus(gap)}."
        )
        since, has_risen = _since_the_lowest(evidence, found, name, unit, others)
        statements += [Statement(text, gap, GAP), *since]
        few = _too_few(evidence, findings.bottom, name, main)
        if math.isnan(gap.low) or few or gap.low <= 0 <= gap.high:
            reason = gap.kind if math.isnan(gap.low) else few or "the interval of the difference holds 0"
            verdicts.append(Unknown(f"not known on {name}: {reason}"))
        else:
            word = "higher" if gap.value > 0 else "lower"
            overfitted = ", and has risen while the other has not: it has overfitted" if has_risen else ""
            verdicts.append(f"the loss on {name} is {abs(gap.value):.3g} {word} than on {others}{overfitted}")
    return Answer.of(GAP, _QUESTION, verdicts, statements)


def _too_few(evidence: Evidence, end: LandscapeData | None, name: str, main: str) -> str:
    """Returns why the interval of a gap is not to be trusted; ``end`` has the losses of samples in its middle."""
    kept = {} if end is None else end.kept_samples
    for one in (name, main):
        losses = kept[one or next(iter(kept))].at(1).astype(np.float64) if kept else None
        if losses is not None and np.isfinite(losses).all() and (few := too_few(losses)):
            return few
        count = evidence.samples.get("" if one == main else one)
        if losses is None and count is not None and (few := few_samples(count)):
            return few
    return ""


def _since_the_lowest(
    evidence: Evidence, found: CheckpointsData, name: str, unit: str, others: str
) -> tuple[list[Statement], bool]:
    """Returns how the loss on a data set changed since it was lowest, and whether it rose more than the main one."""
    metric = name_in_set("loss", name)
    losses = found.metrics[metric]
    rows = found.paths[0][np.isfinite(losses[found.paths[0]])]
    last, lowest = int(rows[-1]), int(rows[np.argmin(losses[rows])])
    if last == lowest:
        number = evidence.exact(f"losses[{last}]", losses=f"checkpoints/{metric}")
        text = f"On {name} no checkpoint is lower than the last one, with {number.value:.4g}."
        return [Statement(text, number, GAP)], False
    parts = [(name, last, 1), (name, lowest, -1)]
    change = _difference(evidence, parts)
    # By chance the lowest of many checkpoints is low; then that on the other samples has moved with it.
    beyond = _difference(evidence, [*parts, ("", last, -1), ("", lowest, 1)])
    text = (
        f"On {name} the loss was lowest at {unit} {found.number[lowest]}, {losses[lowest]:.4g}; it has changed by "
        f"{plus_minus(change)} since."
    )
    more = f"That is {plus_minus(beyond)} more than the change on {others}."
    return [Statement(text, change, GAP), Statement(more, beyond, GAP)], change.low > 0 and beyond.low > 0


def _difference(evidence: Evidence, parts: Sequence[tuple[str, int, int]]) -> Number:
    """Returns a sum of losses of checkpoints; a part is a data set, "" for the main one, a row and a sign."""
    sets = list(dict.fromkeys(name for name, *_ in parts))
    places = {f"loss_{place}": f"checkpoints/{MetricName('loss', dataset=name)}" for place, name in enumerate(sets)}
    signed = (f"{'-' if sign < 0 else '+'} loss_{sets.index(name)}[{row}]" for name, row, sign in parts)
    formula = " ".join(signed).removeprefix("+ ")
    errors = {f"{key}_stderr": place.replace("/loss", "/loss_stderr") for key, place in places.items()}
    squares = " + ".join(f"loss_{sets.index(name)}_stderr[{row}] ** 2" for name, row, _ in parts)
    return evidence.mean(formula, f"sqrt({squares})", *sets, **places, **errors)
