"""Products beside those of curvlinops, an independent library, where it is installed."""

import numpy as np
import pytest
import torch
from curvlinops_peer import by_curvlinops, perceptron
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import evaluator_of, seeded

from workers.curvature.products import Products, ProductSettings


@pytest.mark.slow
def test_products_are_those_of_curvlinops(tmp_path):
    net, generator = seeded(perceptron), np.random.default_rng(0)
    inputs = torch.from_numpy(generator.standard_normal((50, 6)))
    targets = torch.from_numpy(generator.integers(0, 4, 50))
    evaluator = evaluator_of(nn.CrossEntropyLoss(), net, TensorDataset(inputs, targets), batch_size=9)
    found = {}
    for matrix in ("hessian", "ggn"):
        with evaluator.products(ProductSettings(matrix)) as shares:
            vector = shares.layout.gaussian(0)
            found[matrix] = Products(shares)(vector)
    work = {"weights": net.state_dict(), "inputs": inputs, "targets": targets, "vector": torch.from_numpy(vector)}
    theirs = by_curvlinops("products", tmp_path, **work)
    for matrix, product in found.items():
        expected = theirs[matrix].numpy().ravel()
        assert np.linalg.norm(product - expected) <= 1e-10 * np.linalg.norm(expected), matrix
