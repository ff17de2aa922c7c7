"""What MindSpore's trainings and evaluations leave in event files, read with TensorBoard's own reader."""

import json

import mindspore_cases
import pytest
from event_reading import accumulated, tensors
from mindspore.train import Accuracy, Loss

from collectors.mindspore import SummaryCollector


def model():
    metrics = {"accuracy": Accuracy(), "loss": Loss()}
    return mindspore_cases.model_of(mindspore_cases.without_dropout(), metrics=metrics)


def facts(folder):
    texts = [str(item.reshape(-1)[0], "utf-8") for item in tensors(folder, "eval_lineage")]
    return [json.loads(text.removeprefix("```json\n").removesuffix("\n```")) for text in texts]


def test_an_evaluation_alone(mode, tmp_path):
    measured = model().eval(mindspore_cases.dataset(), callbacks=[SummaryCollector(tmp_path)], dataset_sink_mode=False)
    assert [found["metrics"] for found in facts(tmp_path)] == [measured]


def test_evaluations_inside_fit_follow_their_steps(mode, tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape=mindspore_cases.TWO_EPOCHS)
    trained, data = model(), mindspore_cases.dataset()
    trained.fit(2, data, mindspore_cases.dataset(), callbacks=[collector], dataset_sink_mode=False)
    assert [item.step for item in accumulated(tmp_path).Tensors("eval_lineage")] == [3, 6]
    _, last = facts(tmp_path)
    measured = trained.eval(mindspore_cases.dataset(), dataset_sink_mode=False)
    assert {name: last["metrics"][name] for name in measured} == pytest.approx(measured)
