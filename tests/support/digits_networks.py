"""Networks with BatchNorm, trained for a moment on handwritten digits, and lines and planes between them."""

import copy

import torch
from torch import nn
from two_networks import DIGITS, fit

from collectors.networks.torch_network import to_tensor
from landscape import MeasurementPlan, evaluate

PLAN = MeasurementPlan(batch_size=256, threads=1)
INPUTS = torch.tensor(DIGITS.data[:600], dtype=torch.float32)
TARGETS = torch.tensor(DIGITS.target[:600])


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10))


def train(network, epochs=8, seed=0):
    """Returns the network after a few epochs; inputs of up to 16 move the statistics far from those of the start."""
    return fit(copy.deepcopy(network).train(), INPUTS, TARGETS, epochs, seed)


def callback_fn():
    return nn.CrossEntropyLoss(), build(), (INPUTS, TARGETS), {}


def own_loss(network, inputs=INPUTS, targets=TARGETS):
    """By plain PyTorch, all samples in one batch, in float64."""
    with torch.no_grad():
        return float(nn.functional.cross_entropy(copy.deepcopy(network).double().eval()(inputs.double()), targets))


def loss_with(state):
    network = build()
    network.load_state_dict({name: to_tensor(array) for name, array in state.items()})
    return own_loss(network)


def measure(plane, x=(-0.5, 0.0, 0.5, 1.0, 1.5), callback_fn=callback_fn, **options):
    y = None if plane.dimension == 1 else x
    options = {"device_ids": [0], "plan": PLAN, "progress": False, **options}
    return evaluate(plane, callback_fn, x=x, y=y, **options)
