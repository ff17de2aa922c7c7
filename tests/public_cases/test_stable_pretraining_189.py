"""galilai-group/stable-pretraining#189: a network with a lazy layer ended in an error from within PyTorch."""

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane

DATA = torch.ones(8, 4), torch.arange(8) % 3


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine", "ignore:Lazy modules")
def test_it_is_said_what_to_do():
    plane = random_plane(nn.Sequential(nn.Linear(4, 3)))
    with pytest.raises(TypeError, match=r"'0\.weight' has no shape yet \(a lazy layer\); run one batch through"):
        evaluate(
            plane, lambda: (nn.CrossEntropyLoss(), nn.Sequential(nn.LazyLinear(3)), DATA, {}), size=3, device_ids=[0],
            progress=False,
        )  # fmt: skip
