"""pytorch/pytorch#79705: second derivatives of one of PyTorch's own normalizations are wrong."""

import numpy as np
import torch
from torch import nn

from landscape.functions import measure_curvature

INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def callback_fn():
    torch.manual_seed(0)
    return nn.MSELoss(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)).double(), (INPUTS, TARGETS), {}


def loss(parameters):
    bias, gain, direction = parameters.split([2, 2, 8])
    direction = direction.reshape(2, 4)
    weight = gain[:, None] * direction / direction.norm(dim=1, keepdim=True)
    return nn.functional.mse_loss(INPUTS @ weight.t() + bias, TARGETS)


def test_eigenvalues_of_weight_normalization():
    network = callback_fn()[1]
    found = measure_curvature(network, callback_fn, top=3, trace_probes=0, device_ids=[0], progress=False)
    parameters = nn.utils.parameters_to_vector(network.parameters()).detach()
    expected = np.linalg.eigvalsh(torch.autograd.functional.hessian(loss, parameters).numpy())[::-1]
    np.testing.assert_allclose(found.eigenvalues[0], expected[:3], rtol=1e-6)
