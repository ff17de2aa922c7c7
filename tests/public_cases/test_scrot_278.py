"""resurrecting-open-source-projects/scrot#278: a file had the ending of another format than it was written in."""

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
@pytest.mark.parametrize("name", ["z.png", "z.html"])
def test_a_landscape_is_not_written_as_a_picture(tmp_path, name):
    network, calls = nn.Linear(4, 3), []

    def callback_fn():
        calls.append(1)
        return nn.MSELoss(), network, (torch.ones(8, 4), torch.ones(8, 3)), {}

    with pytest.raises(ValueError, match=rf"output .*{name}"):
        evaluate(random_plane(network), callback_fn, size=3, device_ids=[0], progress=False, output=tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert not calls
