"""``landscape check``: what is said, for people and for programs, and the exit code."""

import json
import warnings

import pytest
from command_line import command
from examples import train_run
from places import SUPPORT

CALLBACKS = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import torch
from torch import nn
from torch.nn import functional
from examples import batch_norm

def right():
    return batch_norm()

def permuted():
    loss, network, dataset, metrics = batch_norm()
    inputs, targets = dataset.dataset.tensors
    return loss, network, (inputs, (targets + 1) % 10), metrics

class Dropping(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.convolution, self.norm, self.head = network.convolution, network.norm, network.head

    def forward(self, inputs):
        hidden = functional.dropout(self.norm(self.convolution(inputs)), 0.5, training=True)
        return self.head(functional.relu(hidden).flatten(1))

def dropping():
    loss, network, dataset, metrics = batch_norm()
    return loss, Dropping(network), dataset, metrics
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is collected beside the losses
        train_run(folder / "run", epochs=40)
    (folder / "my_checked.py").write_text(CALLBACKS)
    return folder


def checked(folder, name, *arguments):
    return command("check", "run", "--function", f"my_checked:{name}", "--devices", 0, *arguments,
                   folder=folder, check=False)  # fmt: skip


def test_a_right_run_ends_with_zero(folder):
    before = sorted(folder.glob("run/**/*"))
    said = checked(folder, "right")
    assert said.returncode == 0, said.stdout
    assert said.stdout.startswith(f"Nothing was found that is wrong.\n\n- run: {folder}/run has 41 checkpoints")
    assert "- samples: 64 of 96 are read (the first in the data set's order)." in said.stdout
    assert "- network: buffers: 'norm.running_mean', 'norm.running_var'" in said.stdout
    assert said.stderr == ""
    assert sorted(folder.glob("run/**/*")) == before


def test_a_finding_ends_with_one_and_names_what_is_typed(folder):
    said = checked(folder, "dropping")
    assert said.returncode == 1
    assert said.stdout.startswith("1 finding\n\n1. loss: callback_fn's network was measured twice")
    assert "pass --seed-each-point to what measures too" in " ".join(said.stdout.split())
    assert "Traceback" not in said.stdout + said.stderr
    assert checked(folder, "dropping", "--seed-each-point").stdout.count("measured twice") == 0


def test_programs_get_json(folder):
    said = checked(folder, "permuted", "--json", "--samples", 96)
    found = json.loads(said.stdout)
    assert said.returncode == 1
    assert found["ok"] is False
    (finding,) = found["findings"]
    assert finding.keys() == {"about", "seen", "expected", "remedy"}
    assert [row["number"] for row in found["losses"]] == [0, 10, 20, 30, 40]
    assert {"about": "samples", "text": "96 of 96 are read, which are all."} in found["facts"]
    right = json.loads(checked(folder, "right", "--json").stdout)
    assert right["ok"] is True
    assert right["findings"] == []


def test_what_is_typed_wrongly_is_an_error(folder):
    for arguments, text in (
        (["--samples", "0"], "error: --samples must be an int of at least 1, but got 0"),
        (["--devices", "0,0"], "error: --devices must be a list in which no device id is repeated"),
    ):
        said = checked(folder, "right", *arguments)
        assert said.returncode == 1
        assert said.stdout == ""
        assert said.stderr.startswith(text)
    said = command("check", "nowhere", "--function", "my_checked:right", folder=folder, check=False)
    assert said.stderr.startswith("error: RUN_DIRECTORY")
    said = checked(folder, "nothing")
    assert "which" in said.stderr
