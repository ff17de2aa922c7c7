"""PyTorch itself: the evaluator of modules, and collectors in our Model and in a hand-written loop."""

import torch
from cases import CollectorCase, Crash, EvaluatorCase
from examples import accuracy
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import ConvNet, classes, features, found, images, mlp, seeded

from collectors import Callback, Model, ModelCheckpoint, SummaryCollector
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint
from collectors.model_checkpoint.config import CheckpointConfig


def build_mlp():
    return nn.CrossEntropyLoss(), mlp(), DataLoader(TensorDataset(features(), classes()), 16), {"accuracy": accuracy}


def build_convolutions():
    data = TensorDataset(images(), classes(40, 5))
    return nn.CrossEntropyLoss(), seeded(ConvNet), DataLoader(data, 16, shuffle=True), {"accuracy": accuracy}


def own_loss(built):
    loss, network, loader, _ = built
    network.eval()
    inputs, targets = (torch.stack(part) for part in zip(*loader.dataset, strict=True))
    with torch.no_grad():
        return float(loss(network(inputs), targets))


def freeze(network):
    name, parameter = next(iter(network.named_parameters()))
    parameter.requires_grad_(False)
    return name


EVALUATOR_CASES = [
    EvaluatorCase(
        name=name,
        build=build,
        own_loss=own_loss,
        freeze=freeze,
        freeze_all=lambda network: network.requires_grad_(False),
        recalibrate=recalibrate,
        restored=found,
    )
    for name, build, recalibrate in (
        ("torch MLP", build_mlp, "nothing"),
        ("torch BatchNorm", build_convolutions, "done"),
    )
]


def training_parts():
    network = mlp()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(features(32), classes(32)), 8)
    return network, optimizer, loader


class CrashAfter(Callback):
    def __init__(self, steps):
        self.steps = steps

    def on_train_step_end(self, run_context):
        if run_context.original_args()["cur_step_num"] == self.steps:
            raise Crash


def train_model(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    network, optimizer, loader = training_parts()
    callbacks = [SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)]
    resume = None
    if checkpoint is not None and crash_after is not None:
        config = CheckpointConfig(save_checkpoint_steps=4, keep_checkpoint_max=1)
        callbacks.append(ModelCheckpoint(directory=checkpoint, config=config))
    elif checkpoint is not None:
        resume = latest_checkpoint(checkpoint)
    if crash_after is not None:
        callbacks.append(CrashAfter(crash_after))
    model = Model(network, nn.CrossEntropyLoss(), optimizer)
    model.train(3, loader, callbacks=callbacks, resume_from=resume)


def train_loop(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    network, optimizer, loader = training_parts()
    start = 0
    if checkpoint is not None and crash_after is None:
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        start = 1
    collector = SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)
    step = 4 * start
    with collector.watch(network, optimizer=optimizer, start_epoch=start, start_step=step) as run:
        for epoch in range(start, 3):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(network(inputs), targets)
                loss.backward()
                optimizer.step()
                run.step(loss)
                step += 1
                if step == crash_after:
                    raise Crash
            run.end_epoch()
            if epoch == 0 and checkpoint is not None:
                torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)


COLLECTOR_CASES = [CollectorCase("our Model", train_model), CollectorCase("hand-written loop", train_loop)]
