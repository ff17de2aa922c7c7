"""The factors beside those of curvlinops, an independent K-FAC, where it is installed."""

import pytest
import torch
from curvlinops_peer import by_curvlinops, convolutions
from thor_networks import batches
from torch import nn

from collectors import thor


@pytest.mark.slow
def test_factors_are_those_of_curvlinops(tmp_path):
    torch.manual_seed(0)
    net = convolutions()
    (((images, _), targets),) = batches(1, size=32)
    theirs = by_curvlinops("factors", tmp_path, weights=net.state_dict(), inputs=images, targets=targets)
    optimizer = thor(net, 0.1, 0.1, 0.9, split_dim=10**6)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), targets).backward()
    factors = optimizer.factors()
    assert set(theirs["a"]) == set(theirs["g"]) == set(factors)
    positions = {"0": 64, "3": 4, "6": 1, "8": 1}
    for name, (a, g) in factors.items():
        # curvlinops leaves the sum over positions in one of its factors; the product is what counts.
        ours, expected = positions[name] * torch.kron(g, a), torch.kron(theirs["g"][name], theirs["a"][name])
        cosine = float((ours * expected).sum() / ours.norm() / expected.norm())
        assert cosine > 0.9999, name
        assert float(ours.norm() / expected.norm()) == pytest.approx(1, abs=1e-3), name
