"""How many products eigenpairs cost at networks that were trained a little, at the tolerance that is the default."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import evaluator_of

from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.products import Products, ProductSettings

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.images, dtype=torch.float32)[:, None] / 16
TARGETS = torch.tensor(DIGITS.target)


def lenet():
    return nn.Sequential(
        *(nn.ZeroPad2d(12), nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


class Transformer(nn.Module):
    """Reads an image row by row."""

    def __init__(self):
        super().__init__()
        self.rows, self.places = nn.Linear(8, 32), nn.Parameter(torch.zeros(8, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.inner, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 10)

    def forward(self, images):
        return self.head(self.inner(self.rows(images[:, 0]) + self.places).mean(1))


# How to make it, samples, epochs.
NETWORKS = {"LeNet-5": (lenet, 512, 6), "transformer": (Transformer, 512, 10)}


def trained(name):
    make, count, epochs = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make()
        optimizer = torch.optim.Adam(network.parameters(), 0.003)
        for _ in range(epochs):
            for rows in torch.randperm(count).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(IMAGES[rows]), TARGETS[rows]).backward()
                optimizer.step()
    dataset = TensorDataset(IMAGES[:count], TARGETS[:count])
    return evaluator_of(nn.CrossEntropyLoss(), network.eval(), dataset, batch_size=64)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_products_of_eigenpairs(name):
    with trained(name).products(ProductSettings()) as shares:
        products = Products(shares)
        for top, bottom, most in ((2, 0, 14), (5, 0, 22), (2, 1, 50)):
            found = find_eigenpairs(products, top, bottom)
            assert found.converged.all()
            assert found.products <= most
