"""pytorch/vision#5193: hooks of a user met the symbols of torch.fx when a network's graph was taken."""

import torch
from torch import nn

from collectors import Model, SummaryCollector


def test_they_see_numbers_alone(tmp_path):
    seen, network = [], nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3)))
    network[1].register_forward_hook(lambda layer, inputs, outputs: seen.append(type(outputs)))
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.1))
    batch = torch.ones(6, 4), torch.arange(6) % 3
    model.train(1, [batch, batch], SummaryCollector(tmp_path, collect_specified_data={"collect_graph": True}))
    assert seen == [torch.Tensor, torch.Tensor]
