"""Products of several batches at once: the same bits whoever makes which, and nothing of the user's on a thread."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from worker_cases import case, classifier, evaluator_of, mlp, seeded

from workers.curvature.products import SHARES, ProductSettings
from workers.measurement_plan import MeasurementPlan
from workers.torch.derivatives import products as torch_products

TWO = MeasurementPlan(8, 2)  # the second number is that of threads


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("memory", [0, 20_000, 10**9])
def test_all_at_once_one_by_one_and_some_are_the_same_bits(matrix, memory):
    loss, network, dataset = case("batchnorm")
    evaluator = evaluator_of(loss, network, dataset, plan=TWO)
    with evaluator.products(ProductSettings(matrix, memory=memory)) as shares:
        vector = shares.layout.gaussian(3)
        single = [shares.product(vector, share) for share in range(SHARES)]
        total = shares.total("product", vector)
        for some in (range(SHARES), [5, 2], [7]):
            for found, share in zip(shares.products(vector, some), some, strict=True):
                np.testing.assert_array_equal(found, single[share])
    with evaluator.products(ProductSettings(matrix)) as shares:
        np.testing.assert_array_equal(shares.total("product", vector), total)


@pytest.fixture
def seen(monkeypatch):
    """The thread of each product of a batch, and how many PyTorch may use there."""
    found, made = set(), torch_products.BatchGraph.product

    def product(*arguments, **named):
        found.add((threading.get_ident(), torch.get_num_threads()))
        return made(*arguments, **named)

    monkeypatch.setattr(torch_products.BatchGraph, "product", product)
    return found


def test_cores_share_the_work_and_threads_end_with_it(seen):
    evaluator = classifier(plan=TWO)
    before, threads = torch.get_num_threads(), threading.active_count()
    with evaluator.products(ProductSettings()) as shares:
        for _ in range(20):
            shares.total("product", shares.layout.gaussian(1))
    assert threading.get_ident() not in {thread for thread, _ in seen}
    assert {count for _, count in seen} == {1}
    assert len(seen) == 2
    assert (torch.get_num_threads(), threading.active_count()) == (before, threads)


def test_a_network_that_is_too_large_or_has_one_core_stays_on_its_thread(seen, monkeypatch):
    products = []
    for plan, most in ((TWO, 10), (MeasurementPlan(8, 1), 10**9)):
        monkeypatch.setattr(torch_products, "_MOST_WEIGHTS", most)
        with classifier(plan=plan).products(ProductSettings()) as shares:
            products.append(shares.total("product", shares.layout.gaussian(1)))
    assert {thread for thread, _ in seen} == {threading.get_ident()}
    np.testing.assert_allclose(*products, rtol=1e-4, atol=1e-6)


def test_the_users_code_is_called_on_one_thread():
    network, threads = mlp(), set()
    network[1].register_forward_hook(lambda *_: threads.add(threading.get_ident()))
    with classifier(network, plan=TWO).products(ProductSettings(memory=0)) as shares:
        shares.total("product", shares.layout.gaussian(1))
    assert threads == {threading.get_ident()}


class _Bent(torch.autograd.Function):
    @staticmethod
    def forward(context, values):
        context.save_for_backward(values)
        return values.clone()

    @staticmethod
    def backward(context, slopes):
        return _Broken.apply(slopes, *context.saved_tensors)


class _Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, slopes, values):
        return slopes.clone()

    @staticmethod
    def backward(context, *_):
        raise ArithmeticError("this derivative cannot be computed")


class Broken(nn.Module):
    """Has a first derivative, and a second one that fails."""

    def forward(self, values):
        return _Bent.apply(values.tanh())


def test_what_goes_wrong_on_a_thread_is_raised_and_nothing_runs_on():
    evaluator = classifier(seeded(lambda: nn.Sequential(nn.Linear(6, 8), Broken(), nn.Linear(8, 4))), plan=TWO)
    before = torch.get_num_threads()
    with evaluator.products(ProductSettings()) as shares:
        with pytest.raises(ArithmeticError, match="this derivative cannot be computed"):
            shares.total("product", shares.layout.gaussian(1))
        assert np.isfinite(shares.total("gradient")).all()
    assert torch.get_num_threads() == before
