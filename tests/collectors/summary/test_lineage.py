"""Lineage: which facts are taken."""

import functools
import json
import pathlib

import numpy as np
import pytest

from collectors.summary.lineage import (
    HYPER_CONFIG,
    EvalLineage,
    TrainLineage,
    check_custom_lineage,
    check_dataset_graph,
    check_lineage,
    custom_lineage_with_environment,
    hyperparameters,
)

TRAIN = {
    "network": "LeNet", "loss": 0.5, "optimizer": "SGD", "learning_rate": None, "loss_function": "CrossEntropyLoss",
    "epoch": 3, "parallel_mode": "stand_alone", "device_num": 1, "batch_size": 32, "train_dataset_path": "/data",
    "train_dataset_size": 100, "model_path": '{"ckpt": null}', "model_size": 12,
}  # fmt: skip
check_train = functools.partial(check_lineage, kind=TrainLineage)
check_eval = functools.partial(check_lineage, kind=EvalLineage)


def test_dataclass_and_dictionary_are_the_same():
    assert check_train("x", TrainLineage(**TRAIN)) == check_train("x", TRAIN) == TRAIN
    facts = {"metrics": {"accuracy": 0.5}, "valid_dataset_path": "/v", "valid_dataset_size": 3}
    assert check_eval("x", EvalLineage(**facts)) == check_eval("x", facts) == facts


def test_numbers_of_numpy_and_paths_are_taken():
    facts = {"loss": np.float32("nan"), "epoch": np.int64(2), "train_dataset_path": pathlib.Path("/data")}
    found = check_train("x", facts)
    np.testing.assert_equal(found, {**found, "loss": np.nan, "epoch": 2, "train_dataset_path": "/data"})
    assert check_train("x", {"loss": -(10**400)})["loss"] == -np.inf


@pytest.mark.parametrize(
    ("check", "value", "error", "match"),
    [
        (check_train, EvalLineage(), TypeError, "x must be a TrainLineage or a dict"),
        (check_train, {"color": 1}, ValueError, r"x has unknown keys \['color'\]"),
        (check_train, {"epoch": -1}, ValueError, r"x\['epoch'\] must be an int of at least 0"),
        (check_train, {"loss": "low"}, TypeError, r"x\['loss'\] must be a number"),
        (check_train, {"network": 3}, TypeError, r"x\['network'\] must be a str or None"),
        (check_eval, {"metrics": 3}, TypeError, r"x\['metrics'\] must be a dict"),
        (check_eval, {"metrics": {"a": True}}, TypeError, r"x\['metrics'\]\['a'\] must be a number"),
        (check_eval, {"metrics": {1: 1.0}}, TypeError, "a key of .* must be a str"),
        (check_custom_lineage, {"a": None}, TypeError, r"x\['a'\] must be an int, a float or a str"),
        (check_custom_lineage, {1: "a"}, TypeError, "a key of x must be a str"),
        (check_dataset_graph, {"children": [{"op": object()}]}, TypeError, r"x\['children'\]\[0\]\['op'\] must be"),
        (check_dataset_graph, {"a": {1: 2}}, TypeError, r"a key of x\['a'\] must be a str"),
    ],
)
def test_refuses_what_is_no_fact(check, value, error, match):
    with pytest.raises(error, match=match):
        check("x", value)


def test_dataset_graph_is_copied_and_may_not_hold_itself():
    graph = {"op_type": "Batch", "parameters": {"size": np.int64(3)}, "children": ({"op_type": "Map", "n": None},)}
    found = check_dataset_graph("x", graph)
    assert found == {"op_type": "Batch", "parameters": {"size": 3}, "children": [{"op_type": "Map", "n": None}]}
    assert json.dumps(found)
    graph["parameters"]["loop"] = graph
    with pytest.raises(ValueError, match="is deeper or holds itself"):
        check_dataset_graph("x", graph)


def test_hyperparameters_keep_large_integers_exact():
    facts = {"a": 2**53, "b": 2**53 + 1, "c": -(10**400), "d": None, "e": {"x": 1}, "f": "text", "g": 0.5, "h": True}
    assert hyperparameters(facts) == {
        "a": 2**53, "b": "9007199254740993", "c": str(-(10**400)), "f": "text", "g": 0.5, "h": True,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["{", "[1]", '{"custom_lineage_data": {"a": null}}', "[" * 50_000, "1" * 100_001])
def test_environment_that_cannot_be_read_is_a_warning(monkeypatch, text):
    monkeypatch.setenv(HYPER_CONFIG, text)
    with pytest.warns(UserWarning, match="MINDINSIGHT_HYPER_CONFIG is left out of the lineage"):
        assert custom_lineage_with_environment({"b": 1}) == {"b": 1}
