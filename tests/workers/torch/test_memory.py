"""What an evaluator holds of a plane: each vector once, and never two planes."""

import gc

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import evaluator_of, features, plane_of

WIDTH = 300  # 90,000 elements: moved where they are; biases are moved side by side


def tensor_bytes():
    """Returns the bytes of all tensors of this process, each storage once."""
    gc.collect()
    # What other tests leave behind in the process has tensors without storage of their own.
    plain = [item for item in gc.get_objects() if type(item) in (torch.Tensor, nn.Parameter)]
    storages = [item.untyped_storage() for item in plain if item.layout is torch.strided]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.slow
@pytest.mark.parametrize(("frozen", "share"), [(False, 1.0), (True, 0.5)], ids=["all trainable", "half is frozen"])
def test_a_plane_is_held_once(frozen, share):
    network = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    network[0].requires_grad_(not frozen)
    size = sum(4 * parameter.numel() for parameter in network.parameters())
    inputs = features(inputs=WIDTH)
    evaluator = evaluator_of(nn.MSELoss(), network, TensorDataset(inputs, inputs))
    plane = plane_of(network)
    before = tensor_bytes()
    for _ in range(2):
        evaluator.load(*plane)
        held = tensor_bytes() - before
        # The origin and two directions; small tensors have one more vector in which they are moved.
        assert held == pytest.approx((1 + 2 * share) * size, rel=0.02)
