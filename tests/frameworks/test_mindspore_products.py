"""MindSpore: products of the Hessian by differences of gradients, against the same network's in PyTorch's float64."""

import mindspore
import numpy as np
import pytest
import torch
from cases import open_evaluator
from mindspore import nn, ops
from mindspore_cases import ConvNet, WithOwnLoss, arrays, dataset, restored, set_mode, sparse_loss
from test_mindspore import make_class_weights, torch_twin

from collectors.networks.readers import describe_network, read_network
from landscape.functions import measure_curvature
from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.measuring import check_products
from workers.curvature.probes import find_density, find_trace
from workers.curvature.products import OF_DIFFERENCES, Products, ProductSettings
from workers.errors import CurvatureError

cross_entropy = torch.nn.functional.cross_entropy


def in_float64(network, loss=cross_entropy):
    """Returns the loss of ``arrays(48)`` as a function of all weights in one vector, in PyTorch, and those weights."""
    twin, data = torch_twin(read_network(network)).double(), arrays(48)
    images, labels = torch.tensor(data["image"]).double(), torch.tensor(data["label"]).long()
    # In MindSpore's order, which is that of PyTorch's layers.
    names, start = zip(*((name, value.detach()) for name, value in twin.named_parameters()), strict=True)

    def loss_at(vector):
        parts = vector.split([value.numel() for value in start])
        weights = {name: part.reshape(value.shape) for name, part, value in zip(names, parts, start, strict=True)}
        return loss(torch.func.functional_call(twin, weights, (images,)), labels)

    return loss_at, torch.cat([value.ravel() for value in start])


def mean_loss(outputs, targets):
    return ops.cross_entropy(outputs, targets)


LOSSES = {
    "mean": (sparse_loss, cross_entropy),
    "class weights": (
        lambda: nn.CrossEntropyLoss(make_class_weights(), ignore_index=2),
        lambda outputs, labels: cross_entropy(
            outputs, labels, torch.tensor(make_class_weights().asnumpy()).double(), ignore_index=2
        ),
    ),
    "function": (lambda: mean_loss, cross_entropy),
    "own": (lambda: None, cross_entropy),
}


@pytest.mark.parametrize(
    ("name", "mode", "batch_size"), [("mean", "pynative", 48), *((name, "graph", 16) for name in LOSSES)]
)
def test_products_are_those_of_float64(name, mode, batch_size):
    set_mode(mode)
    make, reference = LOSSES[name]
    network = ConvNet()
    loss_at, start = in_float64(network, reference)
    built = WithOwnLoss(network) if name == "own" else network
    before = read_network(built), restored(built)
    evaluator = open_evaluator((make(), built, dataset(48, batch_size), {}), batch_size)
    with evaluator.products(ProductSettings()) as shares:
        shares.move(before[0], None)
        products, vector = Products(shares), shares.layout.gaussian(5)
        assert products.loss == pytest.approx(float(loss_at(start)), rel=1e-6)
        np.testing.assert_allclose(products.gradient(), torch.func.grad(loss_at)(start).numpy(), atol=5e-6)
        expected = torch.autograd.functional.hvp(loss_at, start, torch.tensor(vector).double())[1].numpy()
        error = np.linalg.norm(products(vector) - expected) / np.linalg.norm(expected)
        assert error < OF_DIFFERENCES["float32"] / 2
        shares.move({**before[0], **{n: 1.5 * before[0][n] for n in shares.layout.names}}, None)
        assert Products(shares).loss == pytest.approx(float(loss_at(1.5 * start)), rel=1e-5)
    evaluator.close()
    for key, value in read_network(built).items():
        np.testing.assert_array_equal(value, before[0][key])
    assert restored(built) == before[1]


def test_eigenvalues_trace_and_density_are_right_within_what_is_said():
    set_mode("graph")
    network = ConvNet()
    loss_at, start = in_float64(network)
    hessian = torch.autograd.functional.hessian(loss_at, start).numpy()
    true = np.linalg.eigvalsh(hessian)
    evaluator = open_evaluator((sparse_loss(), network, dataset(48, 48), {}), 48)
    with evaluator.products(ProductSettings()) as shares:
        shares.move(read_network(network), None)
        products = Products(shares)
        check_products(products, 0)
        ends = find_eigenpairs(products, 2, 0, tolerance=1e-2)
        trace = find_trace(products, ends, 5)
        density = find_density(products, 1, 5)
        assert "products are differences of gradients" in shares.notes[0]
    assert (np.abs(ends.values - true[[-1, -2]]) < ends.residuals).all()
    np.testing.assert_allclose(ends.values, true[[-1, -2]], rtol=2e-4)
    own = np.linalg.norm(ends.vectors @ hessian - ends.values[:, None] * ends.vectors, axis=1)
    assert (own < 1.1 * ends.residuals).all()
    assert ends.converged.all()
    assert trace.low < true.sum() < trace.high
    assert density.nodes.max() == pytest.approx(true[-1], rel=0.2)


def test_a_network_of_float64_takes_smaller_steps():
    set_mode("pynative")
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(20, 3)), generator.normal(size=(20, 2))
    network = nn.Dense(3, 2, dtype=mindspore.float64)
    with open_evaluator((nn.MSELoss(), network, (x, y), {})).products(ProductSettings()) as shares:
        assert shares.layout.dtype == "float64"
        shares.move(read_network(network), None)
        vector = shares.layout.gaussian(0)
        found = Products(shares)(vector)
    widened = np.hstack([x, np.ones((20, 1))])
    weights, bias = vector[:6].reshape(2, 3), vector[6:]
    expected = widened.T @ widened @ np.hstack([weights, bias[:, None]]).T / 20  # the mean over two outputs, doubled
    np.testing.assert_allclose(found, np.concatenate([expected[:3].T.ravel(), expected[3]]), rtol=1e-7)


@pytest.mark.slow
def test_two_workers_give_what_one_gives():
    network = ConvNet()

    def build():
        set_mode("graph")
        return sparse_loss(), ConvNet(), dataset(), {}

    one, two = (
        measure_curvature(network, build, top=1, trace_probes=0, tolerance=0.1, device_ids=devices, progress=False)
        for devices in ([0], [0, 1])
    )
    # Bits depend on how many threads MindSpore takes.
    np.testing.assert_allclose(one.eigenvalues, two.eigenvalues, rtol=1e-5)
    assert "products are differences of gradients" in two.attributes["notes"][0]


class Narrow(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = mindspore.Parameter(mindspore.Tensor(np.ones((64, 5)), mindspore.bfloat16))

    def construct(self, images):
        return ops.matmul(images.reshape(-1, 64), self.weight.astype(mindspore.float32))


@pytest.mark.parametrize(
    ("make", "matrix", "message"),
    [
        (ConvNet, "ggn", r'matrix must be "hessian" for a MindSpore network, but is \'ggn\''),
        (Narrow, "hessian", "weights are bfloat16, in which derivatives are rounding"),
    ],
)
def test_what_has_no_products(make, matrix, message):
    set_mode("pynative")
    assert describe_network(make()).framework == "mindspore"
    with pytest.raises(CurvatureError, match=message):
        open_evaluator((sparse_loss(), make(), dataset(), {})).products(ProductSettings(matrix))


def test_what_graph_mode_cannot_compile_is_told():
    set_mode("graph")
    built = (lambda outputs, targets: float(mean_loss(outputs, targets).asnumpy()), ConvNet(), dataset(), {})
    told = r"(?s)MindSpore cannot differentiate .* set PyNative mode .*trace_by_lines"
    with open_evaluator(built).products(ProductSettings()) as shares:
        shares.move(read_network(built[1]), None)
        with pytest.raises(CurvatureError, match=told):
            shares.gradient(0)


def test_kinks_are_refused():
    set_mode("graph")
    mindspore.set_seed(0)
    network = ConvNet()
    network.activation = nn.ReLU()
    with open_evaluator((sparse_loss(), network, dataset(48, 48), {}), 48).products(ProductSettings()) as shares:
        shares.move(read_network(network), None)
        with pytest.raises(CurvatureError, match=r"also see kinks, such as ReLU's.*trace_by_lines"):
            find_eigenpairs(Products(shares), 2, 1, tolerance=1e-6)
