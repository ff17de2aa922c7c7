"""Lightning, both of its packages: a module with a loss of its own, a data module, a Trainer."""

import copy
import warnings

import torch
from cases import CollectorCase, Crash, EvaluatorCase
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import classes, features, seeded

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what Lightning imports
    import lightning
    import lightning.pytorch
    import pytorch_lightning

from collectors.lightning import SummaryCollector
from workers.lightning import evaluator_from

PACKAGES = {"lightning": lightning.pytorch, "pytorch_lightning": pytorch_lightning}
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def accuracy(outputs, batch):
    return (outputs["logits"].argmax(1) == batch[1]).float().mean()


def make_classes(package):
    class LitModel(package.LightningModule):
        def __init__(self, learning_rate=0.1):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))
            self.learning_rate = learning_rate

        def forward(self, inputs):
            return self.body(inputs)

        def training_step(self, batch, batch_idx):
            inputs, targets = batch
            loss = functional.cross_entropy(self(inputs), targets)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            inputs, targets = batch
            logits = self(inputs)
            loss = functional.cross_entropy(logits, targets)
            self.log("val_loss", loss)
            return {"loss": loss, "logits": logits}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)

    class DataModule(package.LightningDataModule):
        def __init__(self, count=50, batch_size=16):
            super().__init__()
            self.count, self.batch_size = count, batch_size

        def setup(self, stage):
            self.data = TensorDataset(features(self.count), classes(self.count))

        def train_dataloader(self):
            return DataLoader(self.data, self.batch_size)

        def val_dataloader(self):
            return DataLoader(self.data, self.batch_size)

    return LitModel, DataModule


CLASSES = {name: make_classes(package) for name, package in PACKAGES.items()}


def quiet_trainer(name, **options):
    """Returns a Trainer without advice about workers, logging and hardware."""
    return PACKAGES[name].Trainer(**{**QUIET, **options})


def run_quietly(function, *arguments, **options):
    """Calls a function of Lightning; its advice is no error."""
    with warnings.catch_warnings():
        for advice in (
            "The '.*_dataloader' does not have many workers",
            ".*treespec, LeafSpec.*",
            "Checkpoint directory .* exists and is not empty",
            "You're resuming from a checkpoint that ended before the epoch ended",
        ):
            warnings.filterwarnings("ignore", advice)
        return function(*arguments, **options)


def own_loss(name):
    def measure(built):
        _, module, loader, _ = built
        module = copy.deepcopy(module)
        del module.log, module.log_dict
        trainer = quiet_trainer(name)
        return run_quietly(trainer.validate, module, loader, verbose=False)[0]["val_loss"]

    return measure


def freeze(network):
    network.body[0].weight.requires_grad_(False)
    return "body.0.weight"


EVALUATOR_CASES = [
    EvaluatorCase(
        name=name,
        build=lambda name=name: evaluator_from(
            lambda: seeded(CLASSES[name][0]), CLASSES[name][1], metrics={"accuracy": accuracy}
        )(),
        own_loss=own_loss(name),
        freeze=freeze,
        freeze_all=lambda network: network.requires_grad_(False),
        recalibrate="done",
        restored=lambda network: [layer.training for layer in network.modules()],
    )
    for name in PACKAGES
]


def train_with(name):
    package = PACKAGES[name]

    class CrashAfter(package.Callback):
        def __init__(self, steps):
            self.steps = steps

        def on_train_batch_end(self, trainer, *arguments):
            if trainer.global_step == self.steps:
                raise Crash

    def train(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
        collector = SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)
        callbacks = [collector]
        path = None
        if crash_after is not None:
            callbacks.append(CrashAfter(crash_after))
        if checkpoint is not None:
            saver = package.callbacks.ModelCheckpoint(
                checkpoint, "epoch{epoch}", auto_insert_metric_name=False, save_top_k=-1, every_n_epochs=1
            )
            callbacks.append(saver)
            path = checkpoint / "epoch0.ckpt" if crash_after is None else None
        lit_model, data_module = CLASSES[name]
        trainer = quiet_trainer(name, max_epochs=3, callbacks=callbacks, enable_checkpointing=checkpoint is not None)
        run_quietly(trainer.fit, seeded(lit_model), data_module(32, 8), ckpt_path=path)

    return train


COLLECTOR_CASES = [CollectorCase(name, train_with(name)) for name in PACKAGES]
