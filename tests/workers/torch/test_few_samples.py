"""Curvature of fewer samples than there are shares."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape.functions import measure_curvature

GENERATOR = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(9, 4, generator=GENERATOR), torch.randn(9, 2, generator=GENERATOR)


def callback_fn():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=4)
    return nn.MSELoss(), nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), loader, {}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_eigenvalues_of_few_samples(count):
    network = callback_fn()[1].double()
    weights = [parameter.detach() for parameter in network.parameters()]

    def loss(vector):
        first, bias, second, last = (
            part.view_as(weight) for part, weight in zip(vector.split([12, 3, 6, 2]), weights, strict=True)
        )
        outputs = nn.functional.linear(
            torch.tanh(nn.functional.linear(INPUTS[:count].double(), first, bias)), second, last
        )
        return nn.functional.mse_loss(outputs, TARGETS[:count].double())

    hessian = torch.autograd.functional.hessian(loss, torch.cat([weight.reshape(-1) for weight in weights]))
    expected = np.linalg.eigvalsh(hessian.numpy())
    found = measure_curvature(
        callback_fn()[1],
        callback_fn,
        top=1,
        bottom=1,
        trace_probes=0,
        num_samples=count,
        device_ids=[0],
        progress=False,
    )
    np.testing.assert_allclose(found.eigenvalues[0], expected[[-1, 0]], rtol=1e-3)
