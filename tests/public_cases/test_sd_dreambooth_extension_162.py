"""d8ahazard/sd_dreambooth_extension#162: a file whose weights are not where they usually are could not be read."""

import numpy as np
import torch

from collectors.weights.foreign_checkpoint import read_checkpoint


def test_weights_of_composer_lie_two_keys_deep(tmp_path):
    weights = {"w": torch.arange(4.0)}
    torch.save({"state": {"model": weights, "optimizers": {}}, "rng": [{"cpu": torch.zeros(5)}]}, tmp_path / "ep1.pt")
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "ep1.pt").tensors["w"], [0, 1, 2, 3])
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "ep1.pt", "state.model.").tensors["w"], [0, 1, 2, 3])
