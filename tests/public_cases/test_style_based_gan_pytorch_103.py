"""rosinality/style-based-gan-pytorch#103: some files hold several networks, and it was not said which one was read."""

import numpy as np
import torch

from collectors.weights.foreign_checkpoint import read_checkpoint


def test_the_others_are_named(tmp_path):
    path = tmp_path / "train_step-3.model"
    torch.save({"net": {"w": torch.ones(2)}, "generator": {"w": torch.zeros(2)}, "epoch": 3}, path)
    found = read_checkpoint(path)
    np.testing.assert_array_equal(found.tensors["w"], [1, 1])
    (text,) = found.left_out
    assert "other weights under 'generator', which strip_prefix='generator.' takes" in text
    np.testing.assert_array_equal(read_checkpoint(path, "generator.").tensors["w"], [0, 0])
