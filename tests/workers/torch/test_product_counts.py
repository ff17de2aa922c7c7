"""How many products eigenpairs cost at networks that were trained a little, at the tolerance that is the default."""

import sys

import pytest
from places import ROOT
from torch import nn
from worker_cases import evaluator_of

from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.products import Products, ProductSettings

sys.path.append(str(ROOT / "tests" / "benchmarks"))
from networks import prepare_work, read_work


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epochs"), [("LeNet-5", 6), ("transformer", 10)])
def test_products_of_eigenpairs(name, epochs, tmp_path):
    prepare_work(tmp_path / "work.pt", name, 512, epochs)
    network, work = read_work(tmp_path / "work.pt")
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, (work["inputs"], work["targets"]), batch_size=64)
    with evaluator.products(ProductSettings()) as shares:
        products = Products(shares)
        for top, bottom, most in ((2, 0, 14), (5, 0, 22), (2, 1, 50)):
            found = find_eigenpairs(products, top, bottom)
            assert found.converged.all()
            assert found.products <= most
