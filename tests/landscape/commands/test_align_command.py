"""``landscape connect --align`` into a file of weights: the same weights as in Python, from what is typed."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from command_line import invoke
from examples import train_run
from torch import nn

from collectors.run_directory.directory import RunDirectory
from collectors.weights.safetensors_file import CheckpointFile
from landscape.errors import LandscapeWriteError
from landscape.paths.alignment import align
from workers import OwnLoss

inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
targets = torch.arange(40) % 3
PAIR = ("--function", f"{__name__}:pair")


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def pair():
    return nn.CrossEntropyLoss(), network(), (inputs, targets), {}


def own():
    def step(net, batch):
        return nn.functional.cross_entropy(net(input=batch["x"]), batch["y"])

    rows = [{"x": inputs[k : k + 20], "y": targets[k : k + 20]} for k in (0, 20)]
    return OwnLoss(step), network(), rows, {}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(network(seed).state_dict(), tmp_path / f"{name}.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


typed = partial(invoke, "connect", "--align")


@pytest.mark.parametrize("function", ["pair", "own"])
def test_files(folder, function):
    said = typed("a.pt", "b.pt", "--function", f"{__name__}:{function}", "-o", "aligned.safetensors").stdout
    expected = align(folder / "b.pt", to=folder / "a.pt", network=network(), example=inputs)
    written = CheckpointFile(folder / "aligned.safetensors")
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(written.read(name), array)
    lines = expected.summary().splitlines()
    assert said.splitlines()[:3] == ["aligned.safetensors", f"  {lines[0]}", f"  {lines[1]}"]


def test_what_is_there_is_not_replaced(folder):
    (folder / "kept.safetensors").write_text("kept")
    arguments = ("a.pt", "b.pt", *PAIR, "-o", "kept.safetensors")
    with pytest.raises(
        ValueError, match=r"--output kept\.safetensors exists already; choose another name, or pass --ov"
    ):
        typed(*arguments)
    with pytest.raises(LandscapeWriteError, match=r"kept\.safetensors is no weights file and was left as it is"):
        typed(*arguments, "--overwrite")
    assert (folder / "kept.safetensors").read_text() == "kept"
    (folder / "kept.safetensors").write_bytes(b"")
    for _ in range(2):
        typed(*arguments, "--overwrite")
        assert len(CheckpointFile(folder / "kept.safetensors").shapes) == 4


def test_neither_network_is_replaced(folder):
    arguments = (*PAIR, "--overwrite", "-o")
    typed("a.pt", "b.pt", *arguments, "c.safetensors")
    kept = (folder / "c.safetensors").read_bytes()
    (folder / "link.safetensors").symlink_to("c.safetensors")
    for name in ("c", "link"):
        with pytest.raises(LandscapeWriteError, match=rf"^--output must not be one of the inputs, but {name}\.safet"):
            typed("a.pt", "c.safetensors", *arguments, f"{name}.safetensors")
    found = align("c.safetensors", to=folder / "b.pt", network=network(), example=inputs)
    with pytest.raises(LandscapeWriteError, match="path must not be one of the inputs"):
        found.save("c.safetensors")
    assert (folder / "c.safetensors").read_bytes() == kept


def test_checkpoints_of_a_run(folder):
    train_run(folder / "run", epochs=3)
    typed("run@1", "run", "--function", "examples:batch_norm", "-o", "aligned.safetensors")
    run, written = RunDirectory(folder / "run"), CheckpointFile(folder / "aligned.safetensors")
    assert set(written.shapes) >= set(run.checkpoint(3).shapes)
