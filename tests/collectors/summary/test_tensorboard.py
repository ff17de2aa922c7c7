"""A real TensorBoard on a loopback port shows everything that SummaryRecord writes."""

import io
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from waiting import PATIENCE, wait_until

from collectors.summary.lineage import EvalLineage, TrainLineage
from collectors.summary.record import SummaryRecord

PICTURE = np.random.default_rng(0).integers(0, 256, (1, 6, 9, 3), np.uint8)
CONTOUR = np.random.default_rng(1).integers(0, 256, (1, 20, 30, 4), np.uint8)
LOSS = np.linspace(0.5, 2.5, 12).reshape(3, 4)


class Drawn:
    def summary_values(self):
        return {"image": CONTOUR, "tensor": LOSS}


class Server:
    def __init__(self, url):
        self.url = url

    def read(self, path, data=None, **arguments):
        query = urllib.parse.urlencode(arguments)
        kind = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}data/plugin/{path}?{query}", data, kind)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.read()

    def json(self, path, data=None, **arguments):
        return json.loads(self.read(path, data, **arguments))

    def picture(self, tag):
        (found,) = self.json("images/images", run=".", tag=tag, sample=0)
        content = self.read("images/individualImage", **dict(urllib.parse.parse_qsl(found["query"])))
        return found["step"], np.asarray(Image.open(io.BytesIO(content)))

    def text(self, tag):
        return [(item["step"], item["text"]) for item in self.json("text/text", run=".", tag=tag)]


def write(directory):
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with SummaryRecord(directory, network=network, max_file_size=2000, raise_exception=True) as record:
        record.add_value("custom_lineage_data", "custom", {"team": "red", "attempt": 2**60 + 1, "dropout": 0.25})
        record.add_value("dataset_graph", "pipeline", {"op_type": "Batch", "children": [{"op_type": "Mnist"}]})
        record.add_value("image", "input_data/auto", PICTURE)
        record.record(1)
        for step in range(1, 101):
            record.add_value("scalar", "loss/auto", torch.tensor(1.0 / step, dtype=torch.bfloat16))
            if step % 50 == 0:
                record.add_value("histogram", "weight/auto", np.array([0, 1, 1, 2, 2, 2]))
                record.add_value("histogram", "broken", np.array([1.0, 2.0, np.nan, np.inf, np.inf, -np.inf]))
                record.add_value("tensor", "table", np.arange(6.0).reshape(2, 3))
            record.record(step)
        facts = {"network": "Sequential", "optimizer": "SGD", "learning_rate": 0.1, "loss": float("nan"), "epoch": 5}
        record.add_value("train_lineage", "train", TrainLineage(**facts))
        record.record(0)
        record.set_mode("eval")
        record.add_value("eval_lineage", "eval", EvalLineage(metrics={"accuracy": 0.75}, valid_dataset_size=10))
        record.record(0)
        record.add_value("LANDSCAPE", "landscape_[1, 9]", Drawn())
        record.record(0)


# Both of TensorBoard's readers: the fast one is a program of its own that not every platform has.
@pytest.fixture(scope="module", params=["auto", "false"])
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("summaries")
    write(directory)
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--host", "127.0.0.1"]
    command += ["--port", "0", "--reload_interval", "1", "--load_fast", request.param]
    log = directory / "server.log"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield ready(process, log)
        finally:
            process.terminate()


def ready(process, log):
    def loaded():
        assert process.poll() is None, log.read_text()
        found = re.search(r" at (http://\S+)", log.read_text())
        if not found:
            return None
        server = Server(found[1])
        # The graph and the landscape lie at the two ends of what it loads.
        tags = server.json("images/tags").get(".", {})
        return server if "landscape_[1, 9]/image" in tags and server.json("graphs/info") else None

    return wait_until(loaded, what=lambda: f"TensorBoard to load the files: {log.read_text()}")


def test_scalars(server):
    assert set(server.json("scalars/tags")["."]) == {
        "loss/auto", "broken/nan", "broken/positive_infinity", "broken/negative_infinity", "eval_lineage/accuracy",
    }  # fmt: skip
    found = server.json("scalars/scalars", run=".", tag="loss/auto")
    expected = torch.tensor([1.0 / step for step in range(1, 101)], dtype=torch.bfloat16).float().tolist()
    assert [(step, value) for _, step, value in found] == list(enumerate(expected, start=1))


def test_images(server):
    step, picture = server.picture("input_data/auto")
    assert step == 1
    np.testing.assert_array_equal(picture, PICTURE[0])


def test_histograms(server):
    found = server.json("histograms/histograms", run=".", tag="weight/auto")
    assert [step for _, step, _ in found] == [50, 100]
    assert found[0][2] == [[-0.5, 0.5, 1.0], [0.5, 1.5, 2.0], [1.5, 2.5, 3.0]]
    broken = server.json("histograms/histograms", run=".", tag="broken")[0][2]
    assert sum(count for _, _, count in broken) == 2
    counts = {
        name: [value for _, _, value in server.json("scalars/scalars", run=".", tag=f"broken/{name}")]
        for name in ("nan", "positive_infinity", "negative_infinity")
    }
    assert counts == {"nan": [1, 1], "positive_infinity": [2, 2], "negative_infinity": [1, 1]}


def test_tensors_as_text(server):
    found = server.text("table/text")
    assert [step for step, _ in found] == [50, 100]
    assert "shape (2, 3), float64; minimum 0, maximum 5, mean 2.5" in found[0][1]
    assert [float(cell) for cell in re.findall(r"<td>(\d)</td>", found[0][1])] == [0, 1, 2, 3, 4, 5]


def test_lineage_as_text(server):
    assert "1152921504606846977" in server.text("custom")[0][1]
    assert "Mnist" in server.text("pipeline")[0][1]
    assert "Sequential" in server.text("train")[0][1]
    assert "accuracy" in server.text("eval")[0][1]


def test_lineage_as_hyperparameters(server):
    statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
    query = {"startIndex": 0, "sliceSize": 10, "allowedStatuses": statuses, "colParams": []}
    (group,) = server.json("hparams/session_groups", json.dumps(query).encode())["sessionGroups"]
    expected = {"optimizer": "SGD", "epoch": 5, "learning_rate": 0.1, "team": "red", "dropout": 0.25}
    expected |= {"attempt": str(2**60 + 1), "valid_dataset_size": 10}
    assert group["hparams"] == {**group["hparams"], **expected}
    (metric,) = group["metricValues"]
    assert (metric["name"]["tag"], metric["value"]) == ("eval_lineage/accuracy", 0.75)


def test_graph(server):
    assert server.json("graphs/info")["."]["run_graph"]
    graph = server.read("graphs/graph", run=".", conceptual="false").decode()
    assert [name for name in re.findall(r'name: "(.*)"', graph) if "input" not in name] == [
        "Sequential/0", "Sequential/1", "Sequential/2", "Sequential/3", "Sequential/output",
    ]  # fmt: skip
    assert 'op: "Conv2d"' in graph


def test_landscape(server):
    _, picture = server.picture("landscape_[1, 9]/image")
    np.testing.assert_array_equal(picture, CONTOUR[0])
    text = server.text("landscape_[1, 9]/tensor/text")[0][1]
    assert "shape (3, 4), float64; minimum 0.5, maximum 2.5" in text
