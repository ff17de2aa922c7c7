"""BS1125/CMAverse#50: an interval from two repetitions was given, and held not even the estimate."""

import pytest
import torch
from torch import nn

from landscape.functions import compare

DATA = torch.ones(8, 2), torch.ones(8, 1)


@pytest.mark.parametrize("directions", [2, 3])
def test_so_few_directions_are_refused(directions):
    with pytest.raises(ValueError, match=r"directions must be 1.*or at least 4, because intervals from 2 or 3 hold"):
        compare(
            {"a": [nn.Linear(2, 1)], "b": [nn.Linear(2, 1)]}, lambda: (nn.MSELoss(), nn.Linear(2, 1), DATA, {}),
            directions=directions, points=3, device_ids=[0], progress=False,
        )  # fmt: skip
