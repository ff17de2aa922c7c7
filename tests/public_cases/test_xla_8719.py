"""pytorch/xla#8719: what asked for sparse gradients of an embedding got an error from within PyTorch."""

import numpy as np
import torch
from torch import nn

from landscape.functions import measure_curvature

WORDS = torch.randint(6, (8, 1), generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(8) % 2


def callback_fn():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(6, 2, sparse=True), nn.Flatten()).double()
    return nn.CrossEntropyLoss(), network, (WORDS, TARGETS), {}


def loss(weight):
    return nn.functional.cross_entropy(weight.reshape(6, 2)[WORDS[:, 0]], TARGETS)


def test_its_eigenvalues_are_those_of_dense_gradients():
    network = callback_fn()[1]
    found = measure_curvature(network, callback_fn, top=3, trace_probes=0, device_ids=[0], progress=False)
    hessian = torch.autograd.functional.hessian(loss, network[0].weight.detach().reshape(-1))
    expected = np.linalg.eigvalsh(hessian.numpy())[::-1]
    np.testing.assert_allclose(found.eigenvalues[0], expected[:3], rtol=1e-6)
    assert network[0].sparse
