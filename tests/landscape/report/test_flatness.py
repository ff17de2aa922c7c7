"""How flat ends are, and which recipe's are flatter, from numbers that are given."""

import numpy as np
import pytest

from landscape.comparison.comparison import Comparison
from landscape.comparison.data import ComparisonData
from landscape.curvature.curvature import Curvature
from landscape.curvature.data import CurvatureData
from landscape.record.option_kinds import ReportOptions
from landscape.record.options import checked
from landscape.report.flatness import answer_flatness, answer_recipes
from landscape.report.measuring import Findings
from landscape.report.report import _unknown


def findings_of(**found):
    parts = dict.fromkeys(("path", "around", "curvature", "along", "bottom", "comparison"))
    return Findings(**{**parts, "missing": {}, **found})


def compared(paired=(), **rises):
    """Returns findings of recipes whose networks rise so much; NaN is a loss that is not finite."""
    names = [(recipe, name) for recipe, of_networks in rises.items() for name in of_networks]
    rise = np.array([rises[recipe][name] for recipe, name in names])
    columns = {
        "recipe": [recipe for recipe, _ in names],
        "name": [name for _, name in names],
        "sha256": [f"{number:064x}" for number in range(len(names))],
        "t": np.linspace(-1, 1, 3),
    }
    attributes = {
        "radius": 1.0, "confidence": 0.95, "rise": 0.1, "seed": 0, "directions": 4, "normalization": "filter",
        "recipes": list(rises), "paired": list(paired),
    }  # fmt: skip
    data = ComparisonData.empty(columns, {"direction": 4}, attributes)
    noise = 0.01 * np.random.default_rng(0).normal(size=(len(names), 4))
    data.loss[:] = (rise[:, None] + noise - noise.mean(1, keepdims=True))[:, :, None] * columns["t"] ** 2
    data.status[:] = 1
    return findings_of(comparison=Comparison(data))


def test_networks_that_do_not_count_are_said_to_be_left_out(tmp_path):
    findings = compared(sgd={"a": 1.0, "b": 1.1, "c": 1.2, "d": np.nan}, adam={"e": 2.0, "f": 2.1, "g": 2.25})
    assert answer_recipes(findings)[0] == ["sgd is flatter"]
    why = "the loss is not a finite number along one of its lines"
    assert f"Left out of the comparison, sgd d: {why}." in _unknown(
        findings, tmp_path, tmp_path, checked(ReportOptions, {})
    )


def test_pairs_are_described_by_the_networks_that_are_in_them():
    sgd, adam = {"1": 1.0, "2": 1.1, "3": 1.2, "4": 9.0}, {"1": 2.0, "2": 2.1, "3": 2.25}
    _, (statement,) = answer_recipes(compared(paired=("sgd", "adam"), sgd=sgd, adam=adam))
    assert "rises on average by 1.1 for sgd and by 2.12 for adam, over 3 pairs of networks;" in statement.text
    assert statement.number.value == pytest.approx(np.mean([1.0, 1.1, 1.2]) - np.mean([2.0, 2.1, 2.25]))
    _, (statement,) = answer_recipes(compared(sgd=sgd, adam=adam))
    assert "by 3.08 for sgd and by 2.12 for adam; the difference" in statement.text


def test_a_verdict_on_two_networks_says_that_it_is_on_them():
    verdicts, _ = answer_recipes(compared(sgd={"a": 1.0}, adam={"b": 2.0}))
    assert verdicts == ["of these two networks, one of sgd and one of adam, that of sgd is flatter"]


def along(values):
    columns = {"number": list(range(len(values))), "sha256": [f"{number:064x}" for number in range(len(values))]}
    attributes = {"matrix": "hessian", "unit": "epoch", "top": 1, "bottom": 0, "weights": 100}
    data = CurvatureData.empty(columns, {"pair": 1}, attributes)
    data.status[:], data.eigenvalues[:, 0], data.residuals[:] = 1, values, 1e-3
    return findings_of(along=Curvature(data), missing={"end": ""})


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 1, 1, 1 + 1e-9], "none is certainly sharper than the others; the largest eigenvalue of the last one"),
        ([1, 1, 1 + 1e-9, 1], "none is certainly sharper than the others"),
        ([1, 2, 2 + 1e-9, 1], "none is certainly sharper than the others"),
        ([1, 2, 1, 2.1], "the last one is the sharpest, epoch 3"),
        ([1, 2, 2.1, 1], "epoch 2 is the sharpest"),
    ],
)
def test_what_is_equal_but_for_rounding_is_not_the_sharpest(values, found):
    (statement,) = answer_flatness(along(values))[1]
    assert found in statement.text
