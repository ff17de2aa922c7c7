"""pytorch/pytorch#86120: with padded places, a transformer in evaluation is another function than in training."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from landscape import evaluate
from landscape.functions import measure_curvature
from landscape.planes import random_line

PADDED = torch.arange(6) >= torch.tensor([[6], [3], [4], [2]])
INPUTS = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class ReadsEveryPlace(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 1)

    def forward(self, inputs, padded):
        return self.head(self.encoder(inputs, src_key_padding_mask=padded).mean(1)).squeeze(1)


def network():
    torch.manual_seed(0)
    return ReadsEveryPlace().double()


def callback_fn():
    return nn.MSELoss(), network(), [((INPUTS, PADDED), TARGETS)], {}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_landscape_and_curvature_are_of_the_function_that_was_trained():
    quiet = {"device_ids": [0], "progress": False}
    line = evaluate(random_line(network()), callback_fn, x=np.array([-0.1, 0.0, 0.1]), **quiet)
    trained = copy.deepcopy(network()).train()
    expected = nn.functional.mse_loss(trained(INPUTS, PADDED), TARGETS).item()
    assert line.loss[1] == pytest.approx(expected, rel=1e-6)
    curvature = measure_curvature(network(), callback_fn, top=1, trace_probes=0, **quiet)
    assert curvature.loss[0] == pytest.approx(expected, rel=1e-6)
    assert line.origin.metrics["loss"] == pytest.approx(expected, rel=1e-6)
