"""Products beside those of curvlinops, an independent library, where it is installed."""

import subprocess

import numpy as np
import pytest
import torch
from curvlinops_products import __file__ as script
from curvlinops_products import network
from places import ROOT
from torch import nn
from torch.utils.data import TensorDataset
from waiting import PATIENCE
from worker_cases import evaluator_of

from workers.curvature.products import Products, ProductSettings

PEERS = ROOT / ".venv-peers/bin/python"


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="curvlinops 3.0.1 is not installed in .venv-peers")
def test_products_are_those_of_curvlinops(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = network()
    generator = np.random.default_rng(0)
    inputs = torch.from_numpy(generator.standard_normal((50, 6)))
    targets = torch.from_numpy(generator.integers(0, 4, 50))
    evaluator = evaluator_of(nn.CrossEntropyLoss(), net, TensorDataset(inputs, targets), batch_size=9)
    found = {}
    for matrix in ("hessian", "ggn"):
        with evaluator.products(ProductSettings(matrix)) as shares:
            vector = shares.layout.gaussian(0)
            found[matrix] = Products(shares)(vector)
    work = {"weights": net.state_dict(), "inputs": inputs, "targets": targets, "vector": torch.from_numpy(vector)}
    torch.save(work, tmp_path / "work.pt")
    command = [str(PEERS), script, str(tmp_path / "work.pt"), str(tmp_path / "found.pt")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    theirs = torch.load(tmp_path / "found.pt", weights_only=True)
    for matrix, product in found.items():
        expected = theirs[matrix].numpy().ravel()
        assert np.linalg.norm(product - expected) <= 1e-10 * np.linalg.norm(expected), matrix
