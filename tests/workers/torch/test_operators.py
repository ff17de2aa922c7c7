"""Operators with derivatives of ours: those of PyTorch's, or of their formula, and where PyTorch makes them itself."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from three_orders import derivatives, numbers
from torch import nn
from torch.nn import functional
from worker_cases import evaluator_of, seeded

from workers.curvature.measuring import check_products
from workers.curvature.products import Products, ProductSettings
from workers.torch.derivatives.operators import OwnDerivatives

CONVOLUTIONS = {
    "line": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (3, 4, 9)),
    "plane": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (3, 4, 7, 8)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (3, 4, 5, 6)),
    "each channel": (nn.Conv2d(4, 4, 3, groups=4, padding=1), (3, 4, 5, 6)),
    "space": (nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    "transposed line": (nn.ConvTranspose1d(4, 2, 3, stride=2), (3, 4, 5)),
    "transposed plane": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 3, 4)),
    "transposed space": (nn.ConvTranspose3d(2, 2, 2, bias=False), (1, 2, 2, 3, 2)),
}
NORMALIZATIONS = {
    "normalized rows": (nn.BatchNorm1d(4), (5, 4)),
    "normalized line": (nn.BatchNorm1d(4, eps=1e-2), (3, 4, 5)),
    "normalized plane": (nn.BatchNorm2d(3), (4, 3, 2, 5)),
    "normalized space": (nn.BatchNorm3d(2), (2, 2, 2, 3, 2)),
    "normalized without weights": (nn.BatchNorm2d(3, affine=False), (4, 3, 2, 5)),
}
FORMS = CONVOLUTIONS | NORMALIZATIONS
# Without weights there is nothing but inputs to differentiate by.
RECORDED = [item for item in itertools.product(FORMS, (False, True)) if item != ("normalized without weights", False)]
WEIGHT_NORMS = {
    "parametrization": nn.utils.parametrizations.weight_norm,
    "of before": nn.utils.weight_norm,
    "another axis": lambda layer: nn.utils.parametrizations.weight_norm(layer, dim=1),
    "of the whole": lambda layer: nn.utils.parametrizations.weight_norm(layer, dim=None),
}


def filled(name):
    """Returns a layer in eval mode and float64, with statistics that tell each other apart."""
    layer = FORMS[name][0].double().eval()
    for seed, item in enumerate(layer.state_dict().values() if name in NORMALIZATIONS else ()):
        if item.is_floating_point():
            item.copy_(numbers(*item.shape, seed=seed).abs() + 0.1)
    return layer


@pytest.mark.parametrize(("name", "recorded"), RECORDED)
def test_derivatives_of_three_orders_are_those_of_pytorch(name, recorded):
    layer, inputs = filled(name), numbers(*FORMS[name][1], seed=7).requires_grad_(recorded)
    expected = derivatives(layer, inputs)
    with OwnDerivatives():
        own = "_ConvolutionBackward" if name in CONVOLUTIONS else "AddcmulBackward0"
        assert type(layer(inputs).grad_fn).__name__ == own
        found = derivatives(layer, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_transposed_convolution_with_padding_of_its_outputs():
    layer = nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1).double()
    inputs = numbers(2, 2, 4).requires_grad_()
    with OwnDerivatives():  # PyTorch's own second derivative raises here, where the inputs are recorded
        torch.autograd.gradgradcheck(lambda inputs, *_: layer(inputs), (inputs, *layer.parameters()))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("build", [lambda: nn.Conv2d(6, 4, 3), lambda: nn.BatchNorm2d(6).eval()])
def test_the_form_of_memory_stays(build, form):
    layer = build().to(memory_format=form)
    inputs = torch.randn(2, 6, 5, 5).to(memory_format=form)
    with OwnDerivatives():
        outputs = layer(inputs)
    torch.testing.assert_close(outputs, layer(inputs))
    assert outputs.is_contiguous(memory_format=form)


def test_convolutions_of_other_forms_and_precisions_are_left_to_pytorch():
    weight, images = torch.randn(3, 2, 3, 3, requires_grad=True), torch.randn(2, 2, 5, 5)
    with OwnDerivatives():
        same = functional.conv2d(images, weight, padding="same")
        single = functional.conv2d(images[0], weight)
        low = functional.conv2d(images.bfloat16(), weight.bfloat16())
        with torch.autocast("cpu", torch.bfloat16):
            cast = functional.conv2d(images, weight)
        each = torch.func.vmap(lambda image: functional.conv2d(image[None], weight))(images)
        named = functional.conv2d(input=images, weight=weight, bias=None, padding=1)
    for made in (same, single, low, cast, each):
        assert "_ConvolutionBackward" not in type(made.grad_fn).__name__
    assert type(named.grad_fn).__name__ == "_ConvolutionBackward"
    torch.testing.assert_close(named, same)
    torch.testing.assert_close(each[:, 0], functional.conv2d(images, weight))


def test_normalization_by_a_batch_in_lower_precision_and_in_maps_is_left_to_pytorch():
    inputs = numbers(6, 3, 2, 2).float().requires_grad_()
    mean, variance = torch.zeros(3), torch.ones(3)
    with OwnDerivatives():
        trained = functional.batch_norm(inputs, mean.clone(), variance.clone(), training=True)
        untracked = nn.BatchNorm2d(3, track_running_stats=False).eval()(inputs)
        low = functional.batch_norm(inputs.bfloat16(), mean, variance)
        with torch.autocast("cpu", torch.bfloat16):
            cast = functional.batch_norm(inputs, mean, variance)
        each = torch.func.vmap(lambda image: functional.batch_norm(image[None], mean, variance))(inputs.detach())
    assert [type(item.grad_fn).__name__ for item in (trained, untracked, low, cast)] == ["NativeBatchNormBackward0"] * 4
    torch.testing.assert_close(each[:, 0], functional.batch_norm(inputs.detach(), mean, variance))


def gradient(network, inputs, targets, vector, like):
    """Returns the gradient at some weights, by first derivatives of PyTorch's own operators alone."""
    with torch.no_grad():
        nn.utils.vector_to_parameters(vector, like)
    loss = functional.cross_entropy(network(inputs), targets)
    return nn.utils.parameters_to_vector(torch.autograd.grad(loss, like))


def layers_of(name):
    if name == "convolutions":
        parts = nn.Conv2d(1, 2, 3, stride=2), nn.Tanh(), nn.ConvTranspose2d(2, 2, 2), nn.Tanh(), nn.Flatten()
        return nn.Sequential(*parts, nn.Linear(32, 3))
    return nn.Sequential(WEIGHT_NORMS[name](nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["convolutions", *WEIGHT_NORMS])
def test_values_are_those_of_pytorch_and_products_are_differences_of_gradients(name):
    network, targets = seeded(lambda: layers_of(name)).double(), torch.arange(30) % 3
    inputs = numbers(30, 1, 8, 8) if name == "convolutions" else numbers(30, 5)
    expected = network(inputs)
    with OwnDerivatives():
        torch.testing.assert_close(network(inputs), expected, rtol=1e-12, atol=1e-12)
    with (
        contextlib.closing(evaluator_of(nn.CrossEntropyLoss(), network, (inputs, targets), batch_size=8)) as evaluator,
        evaluator.products(ProductSettings()) as shares,
    ):
        products = Products(shares)
        check_products(products, 0)
        vector = shares.layout.gaussian(3).astype(np.float64)
        found, order = products(vector), shares.layout.names
    named = dict(network.named_parameters())
    parameters = [named[key] for key in order]
    here, along = nn.utils.parameters_to_vector(parameters).detach(), 1e-5 * torch.from_numpy(vector)
    after, before = (gradient(network, inputs, targets, here + sign * along, parameters) for sign in (1, -1))
    np.testing.assert_allclose(found, (after - before) / 2e-5, rtol=1e-5, atol=1e-8)
    assert np.abs(found).max() > 1e-2
