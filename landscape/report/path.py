"""What the checkpoints of a run tell: where the training went, and how far the losses of other data sets are."""

from __future__ import annotations

import math

import numpy as np

from workers.metric_names import name_in_set, other_datasets

from ..drawing.texts import main_dataset, unit_of
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from ..planes.pca import percentages
from ..record.checks import PointStatus
from ..record.identity import REDUCTION
from .measuring import Findings
from .statement import NEGLIGIBLE, Evidence, Found, Statement, Unknown, deviations, few_samples, plus_minus, too_few

PATH, GAP = "path", "gap"
# Shares of the path's variance from which on the plane shows it, and below which it does not.
_SHOWN, _HIDDEN = 0.9, 0.5
_NO_SAMPLES = "how skewed the losses of the samples are, and how much each counts, is not known"


def answer_path(findings: Findings) -> Found:
    landscape = findings.path
    found = None if landscape is None else landscape.checkpoints
    if landscape is None or found is None or not found.paths:
        reason = findings.missing.get("path", "") if landscape is None else "the landscape has no path"
        return [Unknown(f"not known: {reason}")], []
    evidence, unit, rows = Evidence.of_landscape(landscape), unit_of(landscape), found.paths[0]
    first, last = int(rows[0]), int(rows[-1])
    label = {row: f"{unit} {found.number[row]}" for row in rows.tolist()}
    shares = evidence.exact("ratio.sum()", ratio="directions/explained_variance_ratio")
    (share,) = percentages([shares.value])
    far = int(rows[np.argmax(found.residual[rows])])
    away = evidence.exact(f"norm[{first}]", norm="checkpoints/norm")
    text = f"The weights of {label[first]} are {{}} away from those of {label[last]}, in Euclidean length."
    statements = [Statement.of(text, away, PATH)]
    losses = found.metrics["loss"][[first, last]]
    if np.isfinite(losses).all():
        # Of independent samples; the samples are the same, so that the true interval is usually shorter.
        error, places = f"hypot(stderr[{last}], stderr[{first}])", {"stderr": "checkpoints/loss_stderr"}
        change = evidence.mean(f"loss[{last}] - loss[{first}]", error, loss="checkpoints/loss", **places)
        # With as many digits as show the change.
        apart = abs(losses[1] - losses[0])
        digits = 4 if not apart else min(max(4, 3 + math.ceil(math.log10(abs(losses).max() / apart))), 16)
        ends = f"{losses[0]:.{digits}g} to {losses[1]:.{digits}g}"
        text = f"From {label[first]} to {label[last]} the loss went from {ends}, a change of {{}}."
        statements.append(Statement.of(text, change, PATH))
    text = (
        f"The plane holds {share} of the variance about the last one of the path's {len(rows)} checkpoints: of the sum "
        "of their squared distances from it."
    )
    statements.append(Statement.of(text, shares, PATH))
    residual = evidence.exact(f"residual[{far}]", residual="checkpoints/residual")
    text = f"Of the checkpoints, {label[far]} is furthest from the plane: {{}} away, in Euclidean length."
    if residual.value <= NEGLIGIBLE * found.norm[rows].max():
        text = f"All checkpoints lie in the plane, but for rounding: {label[far]} is {{}} away from it."
    statements += [Statement.of(text, residual, PATH), *_lowest(evidence, landscape)]
    shown = "shows the path" if shares.value >= _SHOWN else "shows a part of the path"
    verdict = f"the plane {shown if shares.value >= _HIDDEN else 'does not show the path'}: it holds {share}"
    return [f"{verdict} of its variance"], statements


def _lowest(evidence: Evidence, landscape: LandscapeData) -> list[Statement]:
    measured = (landscape.status == PointStatus.MEASURED) & np.isfinite(landscape.loss)
    if not measured.any() or not np.isfinite(landscape.origin.metrics["loss"]):
        return []
    lowest = np.unravel_index(np.argmin(np.where(measured, landscape.loss, np.inf)), landscape.shape)
    row, column = (int(place) for place in lowest)
    number = evidence.mean(
        f"loss[{row}, {column}] - end", f"hypot(stderr[{row}, {column}], end_stderr)", loss="loss", end="origin/loss",
        stderr="loss_stderr", end_stderr="origin/loss_stderr",
    )  # fmt: skip
    # A loss may be without a bound below: -inf is lower than all.
    point = "measured point of the plane" + (" with a finite loss" if np.isneginf(landscape.loss).any() else "")
    if number.value >= 0:
        text = f"No {point} is lower than the end of the path; the lowest one is higher by {{}}."
        return [Statement.of(text, number, PATH)]
    where = f" (x = {landscape.x[column]:.3g}, y = {landscape.y[row]:.3g})" if landscape.y is not None else ""
    sure = "" if number.high < 0 else "; on other samples this may not hold"
    text = f"The loss of the lowest {point}{where} differs from that at the end by {{}}{sure}."
    return [Statement.of(text, number, PATH)]


def answer_gap(findings: Findings) -> Found:
    landscape = findings.path
    found = None if landscape is None else landscape.checkpoints
    names = () if landscape is None else tuple(other_datasets(landscape.metrics))
    if landscape is None or found is None or not found.paths or not names:
        reason = "callback_fn returns one data set" if landscape is not None else "the path was not measured"
        return [Unknown(f"not known: {reason}")], []
    evidence, last = Evidence.of_landscape(landscape, names), int(found.paths[0][-1])
    unit, main = unit_of(landscape), main_dataset(landscape)
    others = main or "the training samples"
    has_samples = findings.bottom is not None and bool(findings.bottom.kept_samples)
    statements: list[Statement] = []
    verdicts: list[str] = []
    for name in names:
        loss = found.metrics[name_in_set("loss", name)]
        if not np.isfinite([loss[last], found.metrics["loss"][last]]).all():
            verdicts.append(Unknown(f"not known for {name}: its loss at the end is not finite"))
            continue
        gap = evidence.loss_difference([(name, last, 1), ("", last, -1)])
        text = (
            f"At {unit} {found.number[last]} the loss on {name} is {loss[last]:.4g} and on {others} "
            f"{found.metrics['loss'][last]:.4g}; the difference is {plus_minus(gap)}."
        )
        since, overfitted = _since_the_lowest(evidence, found, name, unit, others)
        statements += [Statement(text, gap, GAP), *since]
        is_sum = landscape.attributes.get(REDUCTION) == "sum"
        few = _too_few(evidence, findings.bottom, (name, main), is_sum=is_sum)
        if math.isnan(gap.low) or few or gap.low <= 0 <= gap.high:
            reason = gap.kind if math.isnan(gap.low) else few or "the interval of the difference holds 0"
            verdicts.append(Unknown(f"not known on {name}: {reason}"))
        else:
            word = "higher" if gap.value > 0 else "lower"
            verdict = f"the loss on {name} is {abs(gap.value):.3g} {word} than on {others}{overfitted}"
            verdicts.append(verdict if has_samples else f"{verdict}; {_NO_SAMPLES}")
    return verdicts, statements


def _too_few(evidence: Evidence, end: LandscapeData | None, pair: tuple[str, str], *, is_sum: bool) -> str:
    """Returns why the interval of a gap is not to be trusted; ``end`` has the losses of samples in its middle."""
    kept = [] if end is None or not end.kept_samples else [
        end.kept_samples.get(name) or next(iter(end.kept_samples.values())) for name in pair
    ]  # fmt: skip
    counts = [item.count for item in kept] or [evidence.samples.get(place) or 0 for place in (pair[0], "")]
    if (is_sum or (kept and kept[0].is_sum)) and counts[0] != counts[1]:
        return f"the losses are sums over samples, {counts[0]:,} of {pair[0]} and {counts[1]:,} of {pair[1]}"
    losses = [item.at(1)[item.counted].astype(np.float64) for item in kept]
    if not losses or not all(np.isfinite(one).all() for one in losses):
        known = [count for count in (evidence.samples.get(place) for place in (pair[0], "")) if count is not None]
        return next(filter(None, map(few_samples, known)), "")
    weights = [None if item.weights is None else item.weights[item.counted] for item in kept]
    power = 1 if kept[0].is_sum else -1
    variances = np.array([deviations(*of_set).var() for of_set in zip(losses, weights, strict=True)])
    variances *= np.array([float(len(one)) for one in losses]) ** power
    # What hardly adds to the interval may be as skewed as it likes.
    shares = variances / variances.sum() if variances.any() else variances
    found = ((name, too_few(*of_set)) for name, *of_set in zip(pair, losses, shares, weights, strict=True))
    return next((f"{few} on {name}" if name else few for name, few in found if few), "")


def _since_the_lowest(
    evidence: Evidence, found: CheckpointsData, name: str, unit: str, others: str
) -> tuple[list[Statement], str]:
    """Returns how the loss on a data set changed since it was lowest, and words if it rose more than the main one."""
    metric = name_in_set("loss", name)
    losses = found.metrics[metric]
    rows = found.paths[0][np.isfinite(losses[found.paths[0]])]
    last, lowest = int(rows[-1]), int(rows[np.argmin(losses[rows])])
    count = len(found.paths[0])
    seen = f", as far as it is known: at {len(rows)} of {count} checkpoints" if len(rows) < count else ""
    if last == lowest:
        number = evidence.exact(f"losses[{last}]", losses=f"checkpoints/{metric}")
        text = f"On {name} the loss is lowest at the last checkpoint: {number.value:.4g}{seen}."
        return [Statement(text, number, GAP)], ""
    parts = [(name, last, 1), (name, lowest, -1)]
    change = evidence.loss_difference(parts)
    # By chance the lowest of many checkpoints is low; then that on the other samples has moved with it.
    beyond = evidence.loss_difference([*parts, ("", last, -1), ("", lowest, 1)])
    text = (
        f"On {name} the loss was lowest at {unit} {found.number[lowest]}: {losses[lowest]:.4g}{seen}. Since then it "
        f"has changed by {plus_minus(change)}."
    )
    more = f"The difference between this change and that on {others} is {plus_minus(beyond)}."
    statements = [Statement(text, change, GAP), Statement(more, beyond, GAP)]
    if not (change.low > 0 and beyond.low > 0):
        return statements, ""
    has_risen = f"by more than on {others}" if change.value > beyond.value else f"while that on {others} has not"
    return statements, f", and has risen {has_risen}: the network has overfitted"
