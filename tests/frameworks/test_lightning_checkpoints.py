"""Folders of checkpoints that Lightning's own ModelCheckpoint wrote, imported and measured."""

import numpy as np
import pytest
import torch
from lightning_cases import PACKAGES, quiet_trainer, run_quietly
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import classes, features, seeded

from collectors import import_checkpoints
from collectors.networks.readers import describe_network
from landscape import evaluate
from landscape.planes import random_line
from workers.lightning import evaluator_from


def make_network():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))


def data():
    return TensorDataset(features(32), classes(32))


def make_module(package, name="model"):
    class LitModel(package.LightningModule):
        def __init__(self):
            super().__init__()
            setattr(self, name, make_network())
            self.save_hyperparameters({"width": 8})

        def training_step(self, batch, batch_idx):
            return functional.cross_entropy(getattr(self, name)(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

        def train_dataloader(self):
            return DataLoader(data(), 8)

    return LitModel


def trained(folder, package_name, name="model"):
    package = PACKAGES[package_name]
    saver = package.callbacks.ModelCheckpoint(folder, save_top_k=-1, save_last=True)
    module = seeded(make_module(package, name))
    trainer = quiet_trainer(package_name, callbacks=[saver], max_epochs=3)
    run_quietly(trainer.fit, module)
    return module


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folder_of_checkpoints(package, tmp_path):
    module = trained(tmp_path / "old", package)
    assert (tmp_path / "old" / "last.ckpt").exists()
    said = []
    run = import_checkpoints(tmp_path / "run", tmp_path / "old", report=said.append)
    assert (run.settings.unit, sorted(run.metadata.files)) == ("epoch", [0, 1, 2])
    assert "last.ckpt has the same weights as epoch=2-step=12.ckpt" in said[0]
    assert "'model.' is removed from the tensors' names: it is the network inside a LightningModule." in said[0]
    last = run.checkpoint(2, describe_network(make_network()))
    for name, tensor in module.model.state_dict().items():
        np.testing.assert_array_equal(last.read(name), tensor.numpy())
    steps = import_checkpoints(tmp_path / "steps", tmp_path / "old", unit="step")
    assert sorted(steps.metadata.files) == [4, 8, 12]


def test_names_that_say_nothing(tmp_path):
    trained(tmp_path / "old", "lightning")
    for name, file in zip(("start", "middle", "end"), sorted((tmp_path / "old").glob("epoch*")), strict=True):
        file.rename(file.with_stem(name))
    said = []
    run = import_checkpoints(tmp_path / "run", tmp_path / "old", report=said.append)
    assert sorted(run.metadata.files) == [0, 1, 2]
    assert "       1  epoch inside  middle.ckpt" in said[0].splitlines()


def test_what_is_measured_may_be_the_network_or_the_module(tmp_path):
    module = trained(tmp_path / "old", "lightning", "body")
    LitModel = make_module(PACKAGES["lightning"], "body")
    file = tmp_path / "old" / "last.ckpt"

    def of_network():
        return nn.CrossEntropyLoss(), make_network(), data(), {}

    losses = []
    for network, callback_fn in ((make_network(), of_network), (LitModel(), evaluator_from(LitModel, data="training"))):
        line = random_line(file, network=network, seed=0)
        landscape = evaluate(line, callback_fn, size=3, device_ids=[0], progress=False)
        losses.append(landscape.origin.metrics["loss"])
    module.eval()
    with torch.no_grad():
        expected = functional.cross_entropy(module.body(features(32)), classes(32)).item()
    assert losses == pytest.approx([expected, expected], rel=1e-5)
