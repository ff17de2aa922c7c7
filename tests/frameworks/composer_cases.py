"""Composer for the contract tests: a classifier on synthetic samples, and what many of its tests need."""

import composer_import  # noqa: F401, I001  before Composer
import composer
import torch
from cases import CollectorCase, Crash, EvaluatorCase
from composer.models import ComposerClassifier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from collectors.composer import SummaryCollector
from workers.composer_loss import evaluator_from

SAMPLES, FEATURES, CLASSES = 32, 6, 3


class Classifier(composer.ComposerModel):
    """Dropout and BatchNorm, so that eval mode matters; a name of its own for the network inside."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.net = nn.Sequential(
                nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, CLASSES)
            )

    def forward(self, batch):
        inputs, _ = batch
        return self.net(inputs)

    def loss(self, outputs, batch):
        return nn.functional.cross_entropy(outputs, batch[1])

    def get_metrics(self, is_train):
        from torchmetrics.classification import MulticlassAccuracy

        return {"accuracy": MulticlassAccuracy(CLASSES, average="micro")}

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs, batch[1])


def plain_network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))


def without_dropout():
    return ComposerClassifier(plain_network(), num_classes=CLASSES)


def data(samples=SAMPLES):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, FEATURES, generator=generator)
    return TensorDataset(inputs, (inputs @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1))


def loader(samples=SAMPLES, batch_size=8, shuffle=False):
    return DataLoader(data(samples), batch_size=batch_size, shuffle=shuffle)


def trainer(model=None, max_duration="3ep", **options):
    """Returns a Trainer that says nothing."""
    model = Classifier() if model is None else model
    return composer.Trainer(
        **{
            "model": model,
            "train_dataloader": loader(),
            "optimizers": torch.optim.SGD(model.parameters(), lr=0.1),
            "max_duration": max_duration,
            "device": "cpu",
            "progress_bar": False,
            "seed": 17,
            **options,
        }
    )


class CrashAfter(composer.Callback):
    def __init__(self, steps):
        self.steps = steps

    def batch_end(self, state, logger):
        if int(state.timestamp.batch) == self.steps:
            raise Crash(f"after {self.steps} steps")


class SaveAfterFirstEpoch(composer.Callback):
    def __init__(self, path):
        self.path, self.trainer = path, None

    def epoch_checkpoint(self, state, logger):
        if int(state.timestamp.epoch) == 1:
            self.trainer.save_checkpoint(str(self.path))


def train(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None, **options):
    callbacks = [SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)]
    if crash_after is not None:
        callbacks.append(CrashAfter(crash_after))
        if checkpoint is not None:
            callbacks.append(SaveAfterFirstEpoch(checkpoint))
    elif checkpoint is not None:
        options["load_path"] = str(checkpoint)
    made = trainer(callbacks=callbacks, **options)
    for callback in callbacks:
        if isinstance(callback, SaveAfterFirstEpoch):
            callback.trainer = made
    try:
        made.fit()
    finally:
        made.close()


def train_in_microbatches(*arguments, **options):
    train(*arguments, device_train_microbatch_size=2, **options)


def train_a_wrapped_network(*arguments, **options):
    train(*arguments, model=without_dropout(), **options)


def own_loss(built):
    """Returns the mean of Composer's own evaluation: eval mode, its forward pass, its loss."""
    _, model, batches, _ = built
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in batches:
            total += float(model.loss(model.eval_forward(batch), batch)) * len(batch[0])
            count += len(batch[0])
    return total / count


def freeze(model):
    name, parameter = next(iter(model.named_parameters()))
    parameter.requires_grad_(False)
    return name.removeprefix("module.")


def freeze_all(model):
    model.requires_grad_(False)


def modes(model):
    return [(name, module.training) for name, module in model.named_modules()], [
        parameter.requires_grad for parameter in model.parameters()
    ]


def build():
    return evaluator_from(Classifier(), loader(48))


def build_wrapped_network():
    model = without_dropout()
    return None, model, loader(48), {"accuracy": lambda outputs, batch: (outputs.argmax(1) == batch[1]).float().mean()}


EVALUATOR_CASES = [
    EvaluatorCase("composer", build, own_loss, freeze, freeze_all, recalibrate="done", restored=modes),
    EvaluatorCase(
        "composer-classifier", build_wrapped_network, own_loss, freeze, freeze_all, recalibrate="done", restored=modes
    ),
]
COLLECTOR_CASES = [
    CollectorCase("composer", train),
    CollectorCase("composer-microbatches", train_in_microbatches),
    CollectorCase("composer-classifier", train_a_wrapped_network),
]
