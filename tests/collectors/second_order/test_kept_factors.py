"""The factors that an optimizer keeps, and their leading eigenvectors, beside dense Kronecker products."""

import io

import numpy as np
import pytest
import torch
from thor_networks import assert_same_bits, batches, differentiate, mixed, train
from torch import nn

from collectors import thor
from collectors.weights.kronecker import LayerFactors, leading_vectors


def kept(network, data, **settings):
    optimizer = thor(network, 0.1, 0.02, 0.9, **{"frequency": 2, **settings})
    optimizer.keep_factors()
    train(network, optimizer, data)
    return optimizer


def dense(layer):
    """The optimizer's curvature of a weight, flattened as the weight is, and how its entries are ordered."""

    def whole(factor, width):
        if factor.ndim == 1:
            return np.diag(factor)
        size = factor.shape[1]
        matrix = np.zeros((len(factor) * size,) * 2)
        for index, block in enumerate(factor):
            matrix[index * size : (index + 1) * size, index * size : (index + 1) * size] = block
        return matrix[:width, :width]

    rows, columns = layer.shape[0], int(np.prod(layer.shape[1:]))
    if layer.is_diagonal:
        return layer.positions * np.kron(whole(layer.a, rows), whole(layer.g, columns))
    return layer.positions * np.kron(whole(layer.g, rows), whole(layer.a, columns))


@pytest.mark.parametrize("split", [5, 128])
def test_leading_vectors_are_those_of_dense_kronecker_products(split):
    network = mixed(dtype=torch.float64)
    factors = kept(network, batches(1, dtype=torch.float64), split_dim=split).kept_factors()
    assert [layer.weight for layer in factors] == ["conv.weight", "first.weight", "words.weight", "last.weight"]
    matrices = {layer.weight: dense(layer) for layer in factors}
    values = np.sort(np.concatenate([np.linalg.eigvalsh(matrix) for matrix in matrices.values()]))[::-1]
    vectors = leading_vectors(factors, 12)
    np.testing.assert_allclose([vector.value for vector in vectors], values[:12], rtol=1e-9)
    for vector in vectors:
        flat = vector.array.ravel()
        assert vector.array.shape == network.get_parameter(vector.weight).shape
        np.testing.assert_allclose(matrices[vector.weight] @ flat, vector.value * flat, atol=1e-9 * values[0])
    inner = [
        [one.along({other.weight: other.array}) if one.weight == other.weight else 0.0 for other in vectors]
        for one in vectors
    ]
    np.testing.assert_allclose(inner, np.eye(12), atol=1e-10)


def test_what_is_kept_is_what_the_last_refresh_saw():
    network = mixed()
    optimizer = thor(network, 0.1, 0.02, 0.9, frequency=2)
    optimizer.keep_factors()
    assert optimizer.kept_factors() == []
    data = batches(4)
    for number, batch in enumerate(data):
        differentiate(network, optimizer, batch)
        seen = optimizer.factors() if number % 2 == 0 else seen
        optimizer.step()
        for layer in optimizer.kept_factors():
            a, g = seen[layer.weight.removesuffix(".weight")]
            np.testing.assert_array_equal(layer.a if layer.is_diagonal else layer.a[0], a)
            np.testing.assert_array_equal(layer.g[0], g)
            assert layer.positions == (16 if layer.weight == "conv.weight" else 1)


def test_keeping_moves_no_weight_and_survives_a_checkpoint():
    data = batches(5)
    one, other = mixed(), mixed()
    optimizer = kept(one, data[:3], frequency=4)
    train(other, thor(other, 0.1, 0.02, 0.9, frequency=4), data[:3])
    assert_same_bits(one, other)

    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = thor(mixed(), 0.1, 0.02, 0.9, frequency=4)
    resumed.keep_factors()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for ours, theirs in zip(resumed.kept_factors(), optimizer.kept_factors(), strict=True):
        assert (ours.weight, ours.shape, ours.positions) == (theirs.weight, theirs.shape, theirs.positions)
        np.testing.assert_array_equal(ours.a, theirs.a)
        np.testing.assert_array_equal(ours.g, theirs.g)


def test_an_optimizer_that_does_not_keep_drops_older_ones_at_its_refresh():
    network = mixed()
    state = kept(network, batches(1)).state_dict()
    later = thor(network, 0.1, 0.02, 0.9, frequency=2)
    later.load_state_dict(state)
    assert "a_factor" in later.state[network.first.weight]
    train(network, later, batches(2, seed=3))
    assert "a_factor" not in later.state[network.first.weight]


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_factors_that_are_not_finite_leave_the_kept_ones():
    network = mixed()
    optimizer = kept(network, batches(2))
    before = optimizer.kept_factors()
    differentiate(network, optimizer, batches(1, seed=5)[0], scale=float("nan"))
    optimizer.step()
    for ours, theirs in zip(optimizer.kept_factors(), before, strict=True):
        np.testing.assert_array_equal(ours.g, theirs.g)


def test_what_is_refused():
    with pytest.raises(RuntimeError, match=r"no factors are kept. Call keep_factors\(\) before the training's first"):
        thor(mixed(), 0.1, 0.1, 0.9).kept_factors()
    with pytest.raises(ValueError, match="only factors='samples' can be kept, but this optimizer has 'mindspore_gpu'"):
        thor(mixed(), 0.1, 0.1, 0.9, factors="mindspore_gpu").keep_factors()
    good = np.eye(3)[None]
    for factors in ((np.eye(2)[None], good, 1.0), (good, np.zeros((1, 3, 2)), 1.0), (good, np.eye(2)[None], 0.0)):
        with pytest.raises(ValueError, match=r"which do not fit a weight of the shape \(2, 3\)"):
            LayerFactors("layer.weight", (2, 3), *factors)
    with pytest.raises(ValueError, match=r"the factors of layer\.weight are not finite"):
        LayerFactors("layer.weight", (2, 3), np.full((1, 3, 3), np.inf), np.eye(2)[None], 1.0)


def test_no_more_vectors_than_there_are():
    network = nn.Linear(1, 2)
    optimizer = thor(network, 0.1, 0.1, 0.9)
    optimizer.keep_factors()
    network(torch.ones(3, 1)).square().sum().backward()
    optimizer.step()
    found = leading_vectors(optimizer.kept_factors(), 5)
    assert 1 <= len(found) <= 2
    assert all(vector.value > 0 for vector in found)
