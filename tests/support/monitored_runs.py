"""Runs whose losses and metrics are the data's own, so that what a monitor says can be known beforehand."""

import torch
from torch import nn

from collectors.callbacks.callback import (
    EVAL_HOOKS,
    LEGACY_HOOKS,
    TRAIN_HOOKS,
    Callback,
    CallbackParameters,
    RunContext,
)
from collectors.model.model import Model

NAN = float("nan")
INFINITY = float("inf")


class WithoutLength:
    """Batches in a data set that does not know how many they are; given several lists, one for each pass."""

    def __init__(self, *passes):
        self.passes, self.count = passes, 0

    def __iter__(self):
        batches = self.passes[self.count % len(self.passes)]
        self.count += 1
        return iter(batches)


def batches(losses, sizes=None):
    """Returns one batch for each loss, with the wanted numbers of samples (2 each when absent)."""
    sizes = [2] * len(losses) if sizes is None else sizes
    return [
        (torch.ones(size, 1, dtype=torch.float64), torch.full((size, 1), loss, dtype=torch.float64))
        for loss, size in zip(losses, sizes, strict=True)
    ]


def loss_of_the_batch(outputs, targets):
    """The loss of a batch is the mean of its targets, whatever the weights are."""
    return (outputs * 0).sum() + targets.mean()


def mean_target(outputs, targets):
    return targets.mean()


def model(metrics=None, network=None, optimizer=None, **settings):
    network = nn.Linear(1, 1).double() if network is None else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5) if optimizer is None else optimizer
    metrics = {"mean_target": mean_target} if metrics is None else metrics
    return Model(network, loss_of_the_batch, optimizer, metrics, **settings)


def context(**params):
    return RunContext(CallbackParameters(params))


class Hearing(Callback):
    """Its method ``hear`` gets the name and the run context of each hook of both phases."""


for _hook in (*TRAIN_HOOKS, *EVAL_HOOKS):
    setattr(Hearing, _hook, lambda self, run_context, hook=_hook: self.hear(hook, run_context))


class OldStyle(Callback):
    """Notes the phase and the name of each legacy hook that is called."""

    def __init__(self):
        self.calls = []

    def note(self, hook, run_context):
        self.calls.append((run_context.original_args().mode, hook))


for _hook in LEGACY_HOOKS:
    setattr(OldStyle, _hook, lambda self, run_context, hook=_hook: self.note(hook, run_context))


class OnAccelerator(torch.Tensor):
    """A tensor that says it is on a GPU, and counts how often it is read."""

    device, reads = torch.device("cuda"), 0

    def __float__(self):
        OnAccelerator.reads += 1
        return super().__float__()


def on_accelerator(value):
    OnAccelerator.reads = 0
    return torch.tensor(value).as_subclass(OnAccelerator)


class At(Callback):
    """Does something with the run context at one hook of one step."""

    def __init__(self, hook, step, action):
        self.step, self.action = step, action
        setattr(self, hook, self.act)

    def act(self, run_context):
        if run_context.original_args().cur_step_num == self.step:
            self.action(run_context)


def stop_after(step):
    """Asks for a stop when so many steps are done."""
    return At("on_train_step_end", step, RunContext.request_stop)


def raise_after(step, error):
    """Raises the error when so many steps are done."""

    def fail(run_context):
        raise error

    return At("on_train_step_end", step, fail)
