"""microsoft/LoRA#61: eval() adds the low-rank part to the weight, and what is trained afterwards moves nothing."""

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane
from workers.errors import CallbackFunctionError

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")


class LowRank(nn.Linear):
    def __init__(self):
        super().__init__(5, 3)
        self.weight.requires_grad_(False)
        self.left, self.right = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.ones(1, 5))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * (self.left @ self.right).data
            self.merged = not mode
        return self

    def forward(self, inputs):
        return nn.functional.linear(inputs, self.weight if self.merged else self.weight + self.left @ self.right)


def test_it_is_refused_and_left_as_it_was():
    network = LowRank()
    before, inputs = network.weight.clone(), torch.ones(4, 5)
    with pytest.raises(CallbackFunctionError, match=r"eval\(\) changes its weights \('weight'\)"):
        evaluate(
            random_plane(network), lambda: (nn.MSELoss(), network, (inputs, torch.ones(4, 3)), {}), size=3,
            device_ids=[0], progress=False,
        )  # fmt: skip
    assert torch.equal(network.weight, before)
    assert network.training
