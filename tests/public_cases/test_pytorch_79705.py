"""pytorch/pytorch#79705: second derivatives of one of PyTorch's own normalizations are wrong."""

import numpy as np
import torch
from torch import nn

from landscape import measure_curvature

INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def callback_fn():
    torch.manual_seed(0)
    return nn.MSELoss(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)).double(), (INPUTS, TARGETS), {}


def loss(bias, gain, direction):
    weight = gain * direction / direction.norm(dim=1, keepdim=True)
    return nn.functional.mse_loss(INPUTS @ weight.t() + bias, TARGETS)


def test_eigenvalues_of_weight_normalization():
    network = callback_fn()[1]
    found = measure_curvature(
        network, callback_fn, top=3, bottom=1, trace_probes=0, device_ids=[0], progress=False
    )
    parameters = tuple(parameter.detach() for parameter in network.parameters())
    blocks = torch.autograd.functional.hessian(loss, parameters)
    rows = [torch.cat([block.flatten(len(one.shape)).flatten(0, len(one.shape) - 1) for block in row], dim=1)
            for one, row in zip(parameters, blocks, strict=True)]  # fmt: skip
    expected = np.linalg.eigvalsh(torch.cat(rows).numpy())[::-1]
    np.testing.assert_allclose(found.eigenvalues[0][:3], expected[:3], rtol=1e-6)
