"""lisiyao21/Bailando#15: a network that returns the loss of each sample could not be trained."""

import copy

import torch
from torch import nn

from collectors import Model

INPUTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(6) % 3


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, inputs, targets):
        outputs = self.inner(inputs)
        return nn.functional.cross_entropy(outputs, targets, reduction="none"), outputs


def test_a_step_is_that_of_their_mean():
    torch.manual_seed(0)
    network = WithLoss()
    expected = copy.deepcopy(network).double()
    expected(INPUTS.double(), TARGETS)[0].mean().backward()
    wanted = expected.inner.weight.detach() - 0.5 * expected.inner.weight.grad
    model = Model(network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5))
    model.train(1, [({"inputs": INPUTS, "targets": TARGETS}, None)])
    torch.testing.assert_close(network.inner.weight.detach().double(), wanted, rtol=1e-5, atol=1e-6)
