"""Embeddings with sparse gradients have the curvature, and the curves, of those with dense ones."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane
from landscape.functions import connect, measure_curvature

WORDS = torch.randint(10, (8, 5), generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(8) % 3
HOW = {"device_ids": [0], "progress": False}


class Reader(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.words, self.head = nn.Embedding(10, 4, sparse=sparse), nn.Linear(4, 3)

    def forward(self, words):
        return self.head(self.words(words).mean(1))


def build(sparse, seed=0):
    torch.manual_seed(seed)
    return Reader(sparse).double()


def callback_of(network):
    return lambda: (nn.CrossEntropyLoss(), network, (WORDS, TARGETS), {})


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
def test_curvature(matrix):
    found = [
        measure_curvature(network, callback_of(network), matrix=matrix, top=2, trace_probes=3, **HOW)
        for network in (build(False), build(True))
    ]
    np.testing.assert_allclose(found[1].eigenvalues, found[0].eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(found[1].trace, found[0].trace, rtol=1e-10)


def test_curves():
    found = [
        connect(build(sparse), build(sparse, 1), callback_of(build(sparse)), steps=3, **HOW) for sparse in (False, True)
    ]
    np.testing.assert_allclose(found[1].losses, found[0].losses, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_extremes_leave_the_layer_as_it_was():
    found = []
    for network in (build(False), build(True)):
        plane = random_plane(network)
        found.append(evaluate(plane, callback_of(network), size=3, extremes=True, **HOW).metrics["max_eigenvalue"])
    assert network.words.sparse
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8)
