"""Lightning-AI/pytorch-lightning#18930: after an evaluation, layers were in another mode than before."""

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane

DATA = torch.ones(8, 4), torch.arange(8) % 3


class Prepared(nn.Linear):
    """A layer that prepares something when its mode changes."""

    prepared_for_training = True

    def train(self, mode=True):
        self.prepared_for_training = mode
        return super().train(mode)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_all_are_as_they_were():
    network = nn.Sequential(Prepared(4, 4), nn.Dropout(), Prepared(4, 3))
    network[1].eval()
    evaluate(
        random_plane(network), lambda: (nn.CrossEntropyLoss(), network, DATA, {}), size=3, device_ids=[0],
        progress=False,
    )  # fmt: skip
    assert [layer.training for layer in network] == [True, False, True]
    assert network[0].prepared_for_training
    assert network[2].prepared_for_training
