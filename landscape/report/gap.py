"""How far other data sets, such as the test samples, are from those of the training."""

from __future__ import annotations

import numpy as np

from workers.metric_names import name_in_set, other_datasets

from ..drawing.texts import main_dataset, unit_of
from ..grid.data import LandscapeData
from .statement import Answer, Evidence, Number, Statement, plus_minus

GAP = "gap"
_QUESTION = "How large is the gap between training and test?"


def answer_gap(landscape: LandscapeData) -> Answer:
    """Answers from the losses of a run's checkpoints on every data set."""
    found, names = landscape.checkpoints, tuple(other_datasets(landscape.metrics))
    if found is None or not found.paths or not names:
        return Answer(GAP, _QUESTION, "not known: callback_fn returns one data set", known=False)
    evidence, rows = Evidence.of_landscape(landscape, names), found.paths[0]
    main, unit, last = main_dataset(landscape), unit_of(landscape), int(rows[-1])
    statements, verdicts, known = [], [], False
    for name in names:
        loss = name_in_set("loss", name)
        if not np.isfinite([found.metrics[loss][last], found.metrics["loss"][last]]).all():
            verdicts.append(f"not known for {name}: its loss at the end is not finite")
            continue
        gap = _difference(evidence, (loss, last), ("loss", last), name, "")
        text = (
            f"At {unit} {found.number[last]} the loss on {name}, {found.metrics[loss][last]:.4g}, less that on "
            f"{main or 'the training samples'}, {found.metrics['loss'][last]:.4g}, is {plus_minus(gap)}."
        )
        statements += [Statement(text, gap, GAP), *_since_the_lowest(evidence, landscape, name)]
        sure = gap.low > 0 or gap.high < 0
        known |= sure
        word = "higher" if gap.value > 0 else "lower"
        whole = f"the loss on {name} is {abs(gap.value):.3g} {word} than on {main or 'the training samples'}"
        verdicts.append(whole if sure else f"not known on {name}: the interval of the difference holds 0")
    return Answer(GAP, _QUESTION, "; ".join(verdicts), known=known, statements=tuple(statements))


def _since_the_lowest(evidence: Evidence, landscape: LandscapeData, name: str) -> list[Statement]:
    """Returns how the loss on a data set changed since it was lowest."""
    found, loss, unit = landscape.checkpoints, name_in_set("loss", name), unit_of(landscape)
    if found is None:
        return []
    rows = found.paths[0][np.isfinite(found.metrics[loss][found.paths[0]])]
    last, lowest = int(rows[-1]), int(rows[np.argmin(found.metrics[loss][rows])])
    if last == lowest:
        number = evidence.exact(f"losses[{last}]", losses=f"checkpoints/{loss}")
        return [Statement(f"On {name} no checkpoint is lower than the last one, with {number.value:.4g}.", number, GAP)]
    number = _difference(evidence, (loss, last), (loss, lowest), name, name)
    sure = ": it has overfitted" if number.low > 0 else ", which these samples cannot tell from none"
    text = (
        f"On {name} the loss was lowest at {unit} {found.number[lowest]}, {found.metrics[loss][lowest]:.4g}; it has "
        f"changed by {plus_minus(number)} since{sure}."
    )
    return [Statement(text, number, GAP)]


def _difference(evidence: Evidence, first: tuple[str, int], second: tuple[str, int], one: str, other: str) -> Number:
    """Returns one loss of a checkpoint less another, of the data sets ``one`` and ``other``."""
    places = {"first": f"checkpoints/{first[0]}", "second": f"checkpoints/{second[0]}"}
    formula = f"first[{first[1]}] - second[{second[1]}]"
    errors = {name: place.replace("/loss", "/loss_stderr") for name, place in places.items()}
    if not set(errors.values()) <= evidence.arrays.keys():
        return evidence.number(formula, kind="the losses have no standard error", **places)
    error = f"hypot(first_stderr[{first[1]}], second_stderr[{second[1]}])"
    spoken = {f"{name}_stderr": place for name, place in errors.items()}
    return evidence.mean(formula, error, one, other, **places, **spoken)
