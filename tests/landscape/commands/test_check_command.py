"""``landscape check``: what is said, for people and for programs, and the exit code."""

import json
import warnings

import pytest
from command_line import command
from examples import BatchNormNetwork, batch_norm, train_run
from torch.nn import functional

RIGHT = "examples:batch_norm"


def permuted():
    print("Files already downloaded and verified")
    loss, network, dataset, metrics = batch_norm()
    inputs, targets = dataset.dataset.tensors
    return loss, network, (inputs, (targets + 1) % 10), metrics


class Dropping(BatchNormNetwork):
    def forward(self, inputs):
        hidden = functional.dropout(self.norm(self.convolution(inputs)), 0.5, training=True)
        return self.head(functional.relu(hidden).flatten(1))


def dropping():
    loss, network, dataset, metrics = batch_norm()
    other = Dropping()
    other.load_state_dict(network.state_dict())
    return loss, other, dataset, metrics


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is collected beside the losses
        train_run(folder / "run", epochs=40)
    return folder


def checked(folder, function, *arguments):
    named = function if isinstance(function, str) else f"{__name__}:{function.__name__}"
    return command("check", "run", "--function", named, "--devices", 0, *arguments, folder=folder, check=False)


def test_a_right_run_ends_with_zero(folder):
    before = sorted(folder.glob("run/**/*"))
    said = checked(folder, RIGHT)
    assert said.returncode == 0, said.stdout
    assert said.stdout.startswith(f"Nothing was found that is wrong.\n\n- run: {folder}/run has 41 checkpoints")
    assert "- samples: 64 of 96 are read (the first in the data set's order)." in said.stdout
    assert "- network: buffers: 'norm.running_mean', 'norm.running_var'" in said.stdout
    assert said.stderr == ""
    assert sorted(folder.glob("run/**/*")) == before


def test_a_finding_ends_with_one_and_names_what_is_typed(folder):
    said = checked(folder, dropping)
    assert said.returncode == 1
    assert said.stdout.startswith("1 finding\n\n1. loss: callback_fn's network was measured twice")
    assert "pass --seed-each-point to what measures too" in " ".join(said.stdout.split())
    assert "Traceback" not in said.stdout + said.stderr
    assert checked(folder, dropping, "--seed-each-point").stdout.count("measured twice") == 0


def quotes():
    raise ValueError("seed=3 and num_samples of my own")


def test_the_users_words_stay_as_they_are(folder):
    found = " ".join(checked(folder, quotes).stdout.split())
    assert "callback_fn raised ValueError: seed=3 and num_samples of my own" in found


def test_programs_get_json(folder):
    said = checked(folder, permuted, "--json", "--samples", 96)
    found = json.loads(said.stdout)
    assert said.returncode == 1
    assert found["ok"] is False
    (finding,) = found["findings"]
    assert finding.keys() == {"about", "seen", "expected", "remedy"}
    assert [row["number"] for row in found["losses"]] == [0, 10, 20, 30, 40]
    assert {"about": "samples", "text": "96 of 96 are read, which are all."} in found["facts"]
    right = json.loads(checked(folder, RIGHT, "--json").stdout)
    assert right["ok"] is True
    assert right["findings"] == []


def test_what_is_typed_wrongly_is_an_error(folder):
    for arguments, text in (
        (["--samples", "0"], "error: --samples must be an int of at least 1, but got 0"),
        (["--devices", "0,0"], "error: --devices must be a list in which no device id is repeated"),
    ):
        said = checked(folder, RIGHT, *arguments)
        assert said.returncode == 1
        assert said.stdout == ""
        assert said.stderr.startswith(text)
    said = command("check", "nowhere", "--function", RIGHT, folder=folder, check=False)
    assert said.stderr.startswith("error: RUN_DIRECTORY")
    assert "which is neither in" in checked(folder, "nothing:at_all").stderr
