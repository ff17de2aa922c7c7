"""The factors beside those of curvlinops, an independent K-FAC, where it is installed."""

import subprocess

import pytest
import torch
from curvlinops_factors import __file__ as script
from curvlinops_factors import network
from places import ROOT
from thor_networks import batches
from torch import nn
from waiting import PATIENCE

from collectors import thor

PEERS = ROOT / ".venv-peers/bin/python"


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="curvlinops 3.0.1 is not installed in .venv-peers")
def test_factors_are_those_of_curvlinops(tmp_path):
    torch.manual_seed(0)
    net = network()
    (((images, _), targets),) = batches(1, size=32)
    torch.save({"weights": net.state_dict(), "images": images, "targets": targets}, tmp_path / "work.pt")
    command = [str(PEERS), script, str(tmp_path / "work.pt"), str(tmp_path / "found.pt")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    theirs = torch.load(tmp_path / "found.pt", weights_only=True)

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
