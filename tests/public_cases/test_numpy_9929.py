"""numpy/numpy#9929: what was saved under a name was not found under it, because an ending was added."""

import torch
from torch import nn

from collectors import load_checkpoint, save_checkpoint


def test_the_name_that_was_given_is_found(tmp_path):
    network = nn.Linear(3, 2)
    save_checkpoint(network, tmp_path / "best.ckpt")
    found = load_checkpoint(tmp_path / "best.ckpt").weights
    torch.testing.assert_close(torch.from_numpy(found["weight"]), network.weight.detach(), rtol=0, atol=0)
