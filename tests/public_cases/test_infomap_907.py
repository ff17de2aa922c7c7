"""mapequation/infomap#907: what a run wrote took the place of what it had read."""

import os

import pytest
import torch
from torch import nn

from landscape.errors import LandscapeError
from landscape.functions import barrier

DATA = torch.ones(8, 2), torch.ones(8, 1)


def callback_fn():
    return nn.MSELoss(), nn.Linear(2, 1), DATA, {}


@pytest.mark.parametrize("name", ["b.pt", "second_name.h5"])
def test_the_weights_that_are_measured_stay(tmp_path, name):
    for own in ("a.pt", "b.pt"):
        torch.save(nn.Linear(2, 1).state_dict(), tmp_path / own)
    os.link(tmp_path / "b.pt", tmp_path / "second_name.h5")
    before = (tmp_path / "b.pt").read_bytes()
    with pytest.raises(LandscapeError, match="output must not be one of the inputs"):
        barrier(
            tmp_path / "a.pt", tmp_path / "b.pt", callback_fn, points=3, output=tmp_path / name, overwrite=True,
            device_ids=[0], progress=False,
        )  # fmt: skip
    assert (tmp_path / "b.pt").read_bytes() == before
    assert (tmp_path / "b.pt").samefile(tmp_path / "second_name.h5")
