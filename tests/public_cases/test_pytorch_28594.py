"""pytorch/pytorch#28594: a network with the weight norm of before cannot be copied with deepcopy."""

import pytest
import torch
from torch import nn

from landscape.paths.alignment import align

INPUTS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_the_planted_order_is_found():
    one, other = build(), build()
    own, planted = dict(one.named_parameters()), dict(other.named_parameters())
    with torch.no_grad():
        for name, axis in (("0.weight_v", 0), ("0.weight_g", 0), ("0.bias", 0), ("2.weight", 1)):
            planted[name].copy_(own[name].index_select(axis, ORDER))
    one(INPUTS)
    assert align(other, to=one, example=INPUTS).distance_after == pytest.approx(0, abs=1e-6)
