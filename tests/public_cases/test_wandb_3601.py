"""wandb/wandb#3601: a parameter that is one number had no histogram."""

import pytest
import torch
from event_reading import accumulated
from torch import nn

from collectors import Model, SummaryCollector


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.tensor(2.0)), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.scale * self.inner(inputs)


def test_it_holds_its_value(tmp_path):
    network = Scaled()
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.0))
    batch = torch.ones(6, 4), torch.arange(6) % 3
    model.train(1, [batch], SummaryCollector(tmp_path, 1, collect_specified_data={"histogram_regular": "scale"}))
    value = accumulated(tmp_path).Histograms("scale/auto")[-1].histogram_value
    assert (value.num, value.sum) == (1, pytest.approx(2.0))
