"""BVLC/caffe#3612: a decoder whose weight is the encoder's, transposed, needs more than a copy of the numbers."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from landscape.functions import measure_curvature

INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


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


def callback_fn(as_buffer=False):
    torch.manual_seed(0)
    return nn.MSELoss(), Tied(as_buffer), (INPUTS, INPUTS), {}


def loss(weight):
    weight = weight.reshape(2, 4)
    return nn.functional.mse_loss(torch.tanh(INPUTS @ weight.t()) @ weight, INPUTS)


@pytest.mark.parametrize("as_buffer", [False, True])
def test_eigenvalues_are_those_of_one_weight(as_buffer):
    call = functools.partial(callback_fn, as_buffer)
    network = call()[1]
    found = measure_curvature(network, call, top=2, trace_probes=0, device_ids=[0], progress=False)
    hessian = torch.autograd.functional.hessian(loss, network.encoder.weight.detach().reshape(-1))
    expected = np.linalg.eigvalsh(hessian.numpy())[::-1]
    np.testing.assert_allclose(found.eigenvalues[0], expected[:2], rtol=1e-6)
