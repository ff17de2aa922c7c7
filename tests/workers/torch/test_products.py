"""Products of the Hessian and the Gauss-Newton matrix: those of the loss of all samples, on everyday networks."""

import copy
import dataclasses
import functools

import numpy as np
import pytest
import torch
from marked_cases import marked
from saddles import exact_hessian
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import (
    CASES,
    case,
    classes,
    classifier,
    evaluator_of,
    features,
    found,
    labelled,
    mlp,
    plane_of,
    seeded,
    sentence_loader,
    state_of,
    step,
    weighted_mean,
)

from workers import OwnLoss
from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.measuring import CurvatureSettings, check_products, measure_state_curvature
from workers.curvature.products import SHARES, Products, ProductSettings
from workers.errors import CurvatureError, NondeterministicLossError

WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5])
DIGITS = load_digits()
IMAGES, LABELS = torch.tensor(DIGITS.data[:300] / 16), torch.tensor(DIGITS.target[:300])
SLOW = ("transformer", "batchnorm")
WIDE = [name for name in CASES if "16" not in name]


def perceptron():
    """1,210 weights in float64, some steps away from where they began."""
    network = seeded(lambda: nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))).double()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(IMAGES), LABELS).backward()
        optimizer.step()
    optimizer.zero_grad()
    return network


def hessian_of(network, inputs, targets, loss=nn.functional.cross_entropy):
    """Returns the Hessian from all samples at once in float64."""
    inputs, targets = (item.double() if item.is_floating_point() else item for item in (inputs, targets))
    return exact_hessian(copy.deepcopy(network).double().eval(), loss, inputs, targets).numpy()


def all_samples(dataset):
    """Returns inputs and targets, of a data set or that of a loader."""
    dataset, collate = (dataset.dataset, dataset.collate_fn) if isinstance(dataset, DataLoader) else (dataset, None)
    return next(iter(DataLoader(dataset, len(dataset), collate_fn=collate)))


def difference(evaluator, expected, matrix="hessian", memory=0.25):
    """Returns how far a product is from the whole matrix's, as a share of its length."""
    with evaluator.products(ProductSettings(matrix, memory)) as shares:
        products = Products(shares)
        vector = shares.layout.gaussian(5)
        result = products(vector)
    wanted = expected @ vector.astype(np.float64)
    return float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted))


@functools.cache
def perceptrons_hessian():
    return hessian_of(perceptron(), IMAGES, LABELS)


@pytest.mark.parametrize("batch_size", marked([64, 7, 300], pytest.mark.slow, after=1))
def test_the_perceptrons_spectrum_is_that_of_its_whole_hessian(batch_size):
    hessian = perceptrons_hessian()
    values, vectors = np.linalg.eigh(hessian)
    dataset = TensorDataset(IMAGES, LABELS)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), perceptron(), dataset, batch_size=batch_size)
    assert difference(evaluator, hessian) < 1e-12
    with evaluator.products(ProductSettings()) as shares:
        result = find_eigenpairs(Products(shares), 3, 1, tolerance=1e-6)
    np.testing.assert_allclose(result.values, [*values[:-4:-1], values[0]], rtol=1e-8)
    assert (1 - np.abs((result.vectors * vectors[:, [-1, -2, -3, 0]].T).sum(1)) < 1e-10).all()


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("name", WIDE)
def test_what_is_kept_from_product_to_product_changes_no_bit(name, matrix):
    evaluator, result = evaluator_of(*case(name), batch_size=8), []
    for bytes_ in (0, 20_000, 10**9):
        with evaluator.products(ProductSettings(matrix, memory=bytes_)) as shares:
            products, vector = Products(shares), shares.layout.gaussian(1)
            result.append((products.loss, products.gradient(), products(vector), products(vector)))
            assert bool(shares._graphs) == (bytes_ > 0) or bytes_ == 20_000
    for other in result:
        np.testing.assert_array_equal(other[3], result[0][2])
        for one, first in zip(other, result[0], strict=True):
            np.testing.assert_array_equal(one, first)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_products_of_everyday_networks(name):
    """Those in low precision are computed in float32 from the same weights."""
    loss, network, dataset = case(name)
    evaluator = evaluator_of(loss, network, dataset)
    assert difference(evaluator, hessian_of(network, *all_samples(dataset), loss)) < 1e-5
    with evaluator.products(ProductSettings()) as shares:
        assert any("low precision" in note for note in shares.notes) == (name not in WIDE)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("batch_size", [7, 50])
@pytest.mark.parametrize("ignored", [slice(0, 20, 2), slice(0, 30)], ids=["some", "more than a share"])
def test_class_weights_ignored_targets_and_ragged_batches(reduction, batch_size, ignored):
    targets = classes()
    targets[ignored] = -100
    loss = nn.CrossEntropyLoss(weight=WEIGHTS, reduction=reduction)
    exact = nn.CrossEntropyLoss(weight=WEIGHTS.double(), reduction=reduction)
    evaluator = evaluator_of(loss, mlp(), TensorDataset(features(), targets), batch_size=batch_size)
    assert difference(evaluator, hessian_of(mlp(), features(), targets, exact)) < 1e-5


def test_a_loss_that_belongs_to_its_batches_is_the_mean_over_these():
    loader = DataLoader(labelled(), 9)
    expected = sum(len(x) * hessian_of(mlp(), x, y, weighted_mean) for x, y in loader) / 50
    with pytest.warns(UserWarning, match="depends on how samples are batched"):
        evaluator = evaluator_of(weighted_mean, mlp(), loader)
    assert difference(evaluator, expected) < 1e-5


@pytest.mark.slow
def test_a_network_that_computes_its_own_loss():
    network, loader = case("transformer")[1], sentence_loader()
    evaluator = evaluator_of(OwnLoss(step), network, loader)
    assert difference(evaluator, hessian_of(network, *all_samples(loader))) < 1e-5
    with pytest.raises(CurvatureError, match=r'matrix="ggn" needs a loss that is a function.*computes its own loss'):
        evaluator.products(ProductSettings("ggn"))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss()], ids=["cross entropy", "squared error"])
@pytest.mark.parametrize("memory", [0, 10**9])
def test_the_gauss_newton_matrix(loss, memory):
    targets = classes() if isinstance(loss, nn.CrossEntropyLoss) else features(inputs=4, seed=8)
    exact = targets if not targets.is_floating_point() else targets.double()
    network, inputs = mlp().double(), features(dtype=torch.float64)
    names = dict(network.named_parameters())

    def outputs(*values):
        return torch.func.functional_call(network, dict(zip(names, values, strict=True)), (inputs,))

    blocks = torch.autograd.functional.jacobian(outputs, tuple(names.values()))
    jacobian = torch.cat([block.reshape(50 * 4, -1) for block in blocks], 1)
    bend = torch.autograd.functional.hessian(lambda flat: loss(flat.reshape(50, 4), exact), network(inputs).reshape(-1))
    expected = (jacobian.T @ bend @ jacobian).detach().numpy()
    evaluator = evaluator_of(loss, mlp(), TensorDataset(features(), targets), batch_size=9)
    assert difference(evaluator, expected, "ggn", memory) < 1e-5


@pytest.mark.slow
def test_the_gauss_newton_matrix_of_batch_normalization_and_of_a_transformer_is_never_negative():
    for name in ("batchnorm", "transformer"):
        loss, network, dataset = case(name)
        with evaluator_of(loss, network, dataset).products(ProductSettings("ggn")) as shares:
            result = find_eigenpairs(Products(shares), 1, 1, tolerance=0.01)
        assert result.values[0] > 0
        assert result.values[1] > -1e-4 * result.values[0]


def test_shares_hold_the_same_samples_whatever_the_batch_size():
    result = []
    for batch_size in (3, 16, 50):
        with classifier(batch_size=batch_size).products(ProductSettings()) as shares:
            vector = shares.layout.gaussian(2)
            result.append([shares.product(vector, share) for share in range(SHARES)])
            assert [shares.samples_in(share) for share in range(SHARES)] == [25, 0, 0, 0] * 2
    np.testing.assert_allclose(result[0], result[1], atol=1e-5)
    np.testing.assert_allclose(result[0], result[2], atol=1e-5)


@pytest.mark.parametrize(("count", "sizes"), [(300, [150, 0, 0, 0] * 2), (1024, [256, 0] * 4), (2048, [256] * 8)])
def test_few_samples_make_fewer_shares(count, sizes):
    with classifier(count=count, batch_size=100).products(ProductSettings()) as shares:
        assert [shares.samples_in(share) for share in range(SHARES)] == sizes


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_few_samples(count):
    evaluator = classifier(count=count, batch_size=4)
    assert difference(evaluator, hessian_of(mlp(), features(count), classes(count))) < 1e-5


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, value):
        return self.head(self.inner(value.unsqueeze(1))[0][:, 0])


def test_recurrent_layers_have_products():
    network = seeded(Recurrent)
    assert difference(classifier(network), hessian_of(network, features(), classes())) < 1e-5


class Reader(nn.Module):
    """An embedding with sparse gradients, which have no second derivatives."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 3)

    def forward(self, words):
        return self.head(self.words(words).mean(1))


def test_sparse_embeddings_have_products_and_gradients_and_stay_sparse():
    words, targets = torch.randint(10, (8, 5), generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    network, dense = seeded(Reader).double(), seeded(Reader).double()
    dense.words.sparse = False
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, (words, targets))
    assert difference(evaluator, hessian_of(dense, words, targets)) < 1e-10
    with evaluator.products(ProductSettings("ggn")) as shares:
        found = Products(shares).gradient()
    nn.functional.cross_entropy(dense(words), targets).backward()
    np.testing.assert_allclose(found, torch.cat([item.grad.reshape(-1) for item in dense.parameters()]), rtol=1e-10)
    assert network.words.sparse


@pytest.mark.parametrize("name", CASES)
def test_the_network_and_the_loaded_plane_are_left_as_they_were(name):
    loss, network, dataset = case(name)
    network.train()
    before = found(network)
    evaluator = evaluator_of(loss, network, dataset)
    evaluator.load(*plane_of(network))
    loss_before = evaluator.measure(np.array([[0.3, 0.1]]))["loss"]
    parameters, buffers = state_of(network)
    moved = {key: (value * 1.5).astype(value.dtype) for key, value in parameters.items()}
    with evaluator.products(ProductSettings()) as shares:
        measure_state_curvature(shares, moved, buffers, CurvatureSettings(top=1, trace_probes=0))
    np.testing.assert_array_equal(evaluator.measure(np.array([[0.3, 0.1]]))["loss"], loss_before)
    evaluator.close()
    assert found(network) == before


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_a_saturated_network_is_flat(scale):
    """Its products are rounding, which is not symmetric."""
    parameters, buffers = state_of(mlp())
    moved = {name: array * np.float32(scale) for name, array in parameters.items()}
    with classifier().products(ProductSettings()) as shares:
        result = measure_state_curvature(shares, moved, buffers, CurvatureSettings(top=2, bottom=1, trace_probes=2))
    assert np.abs(result.eigenvalues).max() < 1e-3
    assert not np.isnan(result.angle_bounds).any()


class Square(torch.autograd.Function):
    """The square, with a backward that users write in one of several ways."""

    @staticmethod
    def forward(context, value):
        context.save_for_backward(value)
        return value**2

    @staticmethod
    def backward(context, slope):
        (value,) = context.saved_tensors
        return 2 * value * slope


def square(name, backward):
    """Returns the square with another backward."""
    return type(name, (Square,), {"backward": staticmethod(backward)})


class Rounded(torch.autograd.Function):
    """Rounds, with the gradient of the identity: a straight-through estimator."""

    @staticmethod
    def forward(context, value):
        return (8 * value).round() / 8

    @staticmethod
    def backward(context, slope):
        return slope


def products_of(function, place):
    """Returns a product where a Function ends the loss, or is a layer of the network."""
    of_loss = place == "loss"
    layers = [] if of_loss else [nn.Tanh(), Applied(function)]
    network = seeded(lambda: nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 4)))

    def loss(outputs, targets):
        errors = outputs - nn.functional.one_hot(targets, 4)
        return (function.apply(errors) if of_loss else errors**2).mean()

    return product_of(evaluator_of(loss, network, labelled()))


def product_of(evaluator, matrix="hessian"):
    with evaluator.products(ProductSettings(matrix)) as shares:
        return Products(shares)(shares.layout.gaussian(0))


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, value):
        return self.function.apply(value)


@pytest.mark.parametrize("place", ["loss", "network"])
@pytest.mark.parametrize(
    ("backward", "text"),
    [
        (torch.autograd.function.once_differentiable(Square.backward), "once_differentiable has none"),
        (lambda context, slope: 2 * context.saved_tensors[0].detach() * slope, "the backward of Constant is not diff"),
        (torch.no_grad()(Square.backward), "the backward of Constant is not differentiated as it should be"),
    ],
)
def test_a_function_whose_backward_is_taken_for_constant_is_named(backward, text, place):
    with pytest.raises(CurvatureError, match=f"{text}.*trace_by_lines"):
        products_of(square("Constant", backward), place)


@pytest.mark.parametrize("place", ["loss", "network"])
def test_a_function_of_a_user_with_second_derivatives_has_its_products(place, monkeypatch):
    expected = products_of(Square, place)
    # What PyTorch makes of its own operators is the reference.
    monkeypatch.setattr(Square, "apply", lambda value: value**2)
    np.testing.assert_allclose(expected, products_of(Square, place), rtol=1e-5, atol=1e-6)
    assert np.abs(expected).max() > 0.01


def test_a_function_that_rounds_is_no_error():
    assert np.isfinite(products_of(Rounded, "network")).all()


def test_a_loss_that_is_not_recorded_is_an_error():
    def loss(outputs, targets):
        return (outputs.detach().argmax(1) == targets).float().mean()

    evaluator = evaluator_of(loss, mlp(), labelled())
    with pytest.raises(CurvatureError, match="does not depend on the network's weights in a way"):
        product_of(evaluator)


@dataclasses.dataclass
class Scores:
    logits: torch.Tensor


class Scoring(nn.Module):
    """Its outputs lie where no derivative by them is found."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, inputs):
        return Scores(self.inner(inputs))


def penalized(network, outputs, targets):
    return nn.functional.cross_entropy(outputs, targets) + 0.1 * network[0].weight.square().sum()


@pytest.mark.parametrize("kind", ["penalty", "outputs"])
def test_a_loss_that_depends_on_the_weights_beside_the_outputs_has_no_gauss_newton_matrix(kind):
    network = mlp() if kind == "penalty" else Scoring()
    loss = functools.partial(penalized, network)
    if kind == "outputs":

        def loss(outputs, targets):
            return nn.functional.cross_entropy(outputs.logits, targets)

    evaluator = evaluator_of(loss, network, labelled())
    with pytest.raises(CurvatureError, match=r'matrix="ggn" needs .* depends on the weights beside the outputs'):
        product_of(evaluator, "ggn")
    assert np.isfinite(product_of(evaluator)).all()


class Noise(nn.Module):
    def forward(self, value):
        return value + 0.5 * torch.randn_like(value)


def noisy():
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), Noise(), nn.Tanh(), nn.Linear(8, 4)))


def test_a_loss_that_draws_random_numbers_is_found_out():
    evaluator = evaluator_of(weighted_mean, noisy(), DataLoader(labelled(), 10), seed_each_point=True)
    with evaluator.products(ProductSettings()) as shares:
        products = Products(shares)
        check_products(products, 0)
        # Without seeds, what is kept would hide it.
        shares._network.start_batch.__self__._seed = None
        with pytest.raises(NondeterministicLossError, match="the same product with the Hessian gave two results"):
            check_products(products, 0)


def test_a_backward_that_is_not_the_derivative_is_found_out_from_a_few_samples():
    of_the_neighbour = square("Skewed", lambda context, slope: 2 * slope * context.saved_tensors[0].roll(1, -1))
    network = seeded(lambda: nn.Sequential(nn.Linear(6, 8), Applied(of_the_neighbour), nn.Linear(8, 4)))
    with (
        classifier(network, 400, batch_size=128).products(ProductSettings()) as shares,
        pytest.raises(CurvatureError, match="not those of a symmetric matrix"),
    ):
        check_products(Products(shares), 0)


def sizes_of_passes(evaluator, work):
    """Returns how many samples each forward pass has that some work with products makes after the loss is known."""
    sizes = []
    with evaluator.products(ProductSettings(memory=0)) as shares:
        products = Products(shares)
        module = shares._network.module
        with module.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0]))):
            work(products)
    return sizes


def test_a_check_computes_a_few_samples_anew_and_whole_batches_where_a_loss_belongs_to_them():
    with pytest.warns(UserWarning, match="depends on how samples are batched"):
        of_batches = evaluator_of(weighted_mean, mlp(), DataLoader(labelled(), 20))
    for evaluator, size in ((classifier(count=400, batch_size=128), 8), (of_batches, 20)):
        assert sizes_of_passes(evaluator, lambda products: check_products(products, 0)) == [size] * 3


def test_an_estimate_is_of_the_first_few_samples_that_count():
    targets = classes(400)
    targets[:30] = -100
    expected = hessian_of(mlp(), features(400)[20:40], targets[20:40])
    evaluator = evaluator_of(nn.CrossEntropyLoss(), mlp(), TensorDataset(features(400), targets), batch_size=128)
    found, vectors = [], []

    def work(products):
        vectors.append(products.layout.gaussian(5))
        found.append(products.estimated(vectors[0], 20))

    assert sizes_of_passes(evaluator, work) == [20, 20]
    # Ten of twenty samples count, which stand for a share of 200 in a sum over 370.
    np.testing.assert_allclose(found[0], expected @ vectors[0] * (10 * 10 / 370), rtol=1e-3, atol=1e-5)
    # No part of what is kept from product to product.
    with classifier(count=400, batch_size=128).products(ProductSettings()) as shares:
        before = shares.product(vectors[0], 0)
        shares.product(vectors[0], 0, few=8)
        np.testing.assert_array_equal(shares.product(vectors[0], 0), before)


def sizes_in_a_product(network, inputs, batch_size, **choices):
    dataset = TensorDataset(inputs, classes(len(inputs)))
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, dataset, batch_size=batch_size, **choices)
    return sizes_of_passes(evaluator, lambda products: products(products.layout.gaussian(0)))


def test_small_samples_are_computed_many_at_once_whatever_suits_a_forward_pass():
    assert sizes_in_a_product(mlp(), features(1024), 16) == [256] * 4
    assert sizes_in_a_product(mlp(), features(1024), 48) == [192, 64, 128, 128, 64, 192, 192, 64]
    assert sizes_in_a_product(mlp(), features(2048), 1024) == [256] * 8
    assert sizes_in_a_product(mlp(), features(100), 5) == [50, 50]


@pytest.mark.slow
def test_large_samples_are_computed_as_in_a_forward_pass():
    # A sample saves 256 KB.
    network = seeded(lambda: nn.Sequential(nn.Linear(6, 1 << 16), nn.Tanh(), nn.Linear(1 << 16, 4)))
    assert sizes_in_a_product(network, features(256), 32) == [64] * 4
    assert sizes_in_a_product(network, features(256), 128) == [128] * 2


def test_random_numbers_are_drawn_for_the_data_sets_own_batches():
    assert sizes_in_a_product(noisy(), features(256), 64, seed_each_point=True) == [128] * 2


@pytest.mark.parametrize(
    ("settings", "wrong", "text"),
    [
        (ProductSettings, {"matrix": "fisher"}, "matrix must be"),
        (CurvatureSettings, {"bottom": 1, "max_products": 5}, r"max_products must be top \+ bottom \(6\) or more"),
        (CurvatureSettings, {"tolerance": 0.0}, "tolerance must be"),
    ],
)
def test_settings_that_make_no_sense(settings, wrong, text):
    with pytest.raises(ValueError, match=text):
        settings(**wrong)


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


# How to make it, and epochs.
NETWORKS = {"LeNet-5": (lenet, 6), "transformer": (Transformer, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_products_of_eigenpairs(name):
    """At the tolerance that is the default, at networks that were trained a little."""
    make, epochs = NETWORKS[name]
    images, targets = torch.tensor(DIGITS.images[:512, None] / 16).float(), torch.tensor(DIGITS.target[:512])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make()
        optimizer = torch.optim.Adam(network.parameters(), 0.003)
        for _ in range(epochs):
            for rows in torch.randperm(512).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images[rows]), targets[rows]).backward()
                optimizer.step()
    dataset = TensorDataset(images, targets)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network.eval(), dataset, batch_size=64)
    with evaluator.products(ProductSettings()) as shares:
        products = Products(shares)
        for top, bottom, most in ((2, 0, 14), (5, 0, 22), (2, 1, 50)):
            result = find_eigenpairs(products, top, bottom)
            assert result.converged.all()
            assert result.products <= most
