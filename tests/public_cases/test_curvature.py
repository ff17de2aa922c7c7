"""Reports of other projects on second derivatives: of tied, normalized and padded layers."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

from landscape import evaluate
from landscape.functions import measure_curvature
from landscape.planes import random_line

QUIET = {"device_ids": [0], "progress": False}
INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Tied(nn.Module):
    def __init__(self, as_buffer=False):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        self.double()
        if as_buffer:
            del self.decoder.weight
            self.decoder.register_buffer("weight", self.encoder.weight.data.t())
        else:
            self.decoder.weight = nn.Parameter(self.encoder.weight.data.t())

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


def tied(as_buffer):
    return nn.MSELoss(), Tied(as_buffer), (INPUTS, INPUTS), {}


def loss_of_tied(weight):
    weight = weight.reshape(2, 4)
    return nn.functional.mse_loss(torch.tanh(INPUTS @ weight.t()) @ weight, INPUTS)


def normalized():
    return nn.MSELoss(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)).double(), (INPUTS, TARGETS), {}


def loss_of_normalized(parameters):
    bias, gain, direction = parameters.split([2, 2, 8])
    direction = direction.reshape(2, 4)
    weight = gain[:, None] * direction / direction.norm(dim=1, keepdim=True)
    return nn.functional.mse_loss(INPUTS @ weight.t() + bias, TARGETS)


CASES = {
    # A decoder whose weight is the encoder's, transposed, needs more than a copy of the numbers.
    "BVLC/caffe#3612": (functools.partial(tied, False), loss_of_tied, 2),
    "BVLC/caffe#3612 as a buffer": (functools.partial(tied, True), loss_of_tied, 2),
    # Second derivatives of one of PyTorch's own normalizations are wrong.
    "pytorch/pytorch#79705": (normalized, loss_of_normalized, 3),
}


@pytest.mark.parametrize("case", CASES)
def test_eigenvalues_are_those_of_the_dense_hessian(case):
    make, loss, top = CASES[case]

    def callback_fn():
        torch.manual_seed(0)
        return make()

    network = callback_fn()[1]
    found = measure_curvature(network, callback_fn, top=top, trace_probes=0, **QUIET)
    own = {tensor.data_ptr(): tensor for tensor in reversed(list(network.parameters()))}  # a tied one once
    parameters = nn.utils.parameters_to_vector(reversed(own.values())).detach()
    expected = np.linalg.eigvalsh(torch.autograd.functional.hessian(loss, parameters).numpy())[::-1]
    np.testing.assert_allclose(found.eigenvalues[0], expected[:top], rtol=1e-6)


PADDED = torch.arange(6) >= torch.tensor([[6], [3], [4], [2]])
SENTENCES = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class ReadsEveryPlace(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 1)

    def forward(self, inputs, padded):
        return self.head(self.encoder(inputs, src_key_padding_mask=padded).mean(1)).squeeze(1)


def transformer():
    torch.manual_seed(0)
    return ReadsEveryPlace().double()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_landscape_and_curvature_are_of_the_function_that_was_trained():
    """pytorch/pytorch#86120: with padded places, a transformer in evaluation is another function than in training."""
    data = [((SENTENCES, PADDED), TARGETS[:4, 0])]
    callback_fn = lambda: (nn.MSELoss(), transformer(), data, {})  # noqa: E731
    line = evaluate(random_line(transformer()), callback_fn, x=np.array([-0.1, 0.0, 0.1]), **QUIET)
    trained = copy.deepcopy(transformer()).train()
    expected = nn.functional.mse_loss(trained(SENTENCES, PADDED), TARGETS[:4, 0]).item()
    assert line.loss[1] == pytest.approx(expected, rel=1e-6)
    curvature = measure_curvature(transformer(), callback_fn, top=1, trace_probes=0, **QUIET)
    assert curvature.loss[0] == pytest.approx(expected, rel=1e-6)
    assert line.origin.metrics["loss"] == pytest.approx(expected, rel=1e-6)
