"""Our derivatives of convolutions against PyTorch's own, of both orders, and where PyTorch makes them itself."""

import itertools

import pytest
import torch
from three_orders import derivatives, numbers
from torch import nn
from torch.nn import functional
from worker_cases import evaluator_of

from workers.curvature.products import Products, ProductSettings
from workers.torch.convolutions import OwnConvolutions

FORMS = {
    "line": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (3, 4, 9)),
    "plane": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (3, 4, 7, 8)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (3, 4, 5, 6)),
    "each channel": (nn.Conv2d(4, 4, 3, groups=4, padding=1), (3, 4, 5, 6)),
    "space": (nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    "transposed line": (nn.ConvTranspose1d(4, 2, 3, stride=2), (3, 4, 5)),
    "transposed plane": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 3, 4)),
    "transposed space": (nn.ConvTranspose3d(2, 2, 2, bias=False), (1, 2, 2, 3, 2)),
}


@pytest.mark.parametrize(("name", "recorded"), list(itertools.product(FORMS, (False, True))))
def test_derivatives_of_three_orders_are_those_of_pytorch(name, recorded):
    layer, shape = FORMS[name]
    layer = layer.double()
    inputs = numbers(*shape, seed=7).requires_grad_(recorded)
    expected = derivatives(layer, inputs)
    with OwnConvolutions():
        assert type(layer(inputs).grad_fn).__name__ == "_ConvolutionBackward"
        found = derivatives(layer, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_transposed_one_with_padding_of_its_outputs():
    layer = nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1).double()
    inputs = numbers(2, 2, 4).requires_grad_()
    with OwnConvolutions():  # PyTorch's own second derivative raises here, where the inputs are recorded
        torch.autograd.gradgradcheck(lambda inputs, *_: layer(inputs), (inputs, *layer.parameters()))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_the_form_of_memory_stays(form):
    layer = nn.Conv2d(4, 6, 3).to(memory_format=form)
    inputs = torch.randn(2, 4, 5, 5).to(memory_format=form)
    with OwnConvolutions():
        outputs = layer(inputs)
    torch.testing.assert_close(outputs, layer(inputs), rtol=0, atol=0)
    assert outputs.is_contiguous(memory_format=form)


def test_a_word_for_the_padding_one_sample_and_lower_precision_are_left_to_pytorch():
    weight, images = torch.randn(3, 2, 3, 3, requires_grad=True), torch.randn(2, 2, 5, 5)
    with OwnConvolutions():
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


def test_a_product_of_a_convolutional_network_is_that_of_its_whole_hessian():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(1, 2, 3, stride=2), nn.Tanh(), nn.ConvTranspose2d(2, 2, 2), nn.Tanh(), nn.Flatten()),
            nn.Linear(32, 3),
        ).double()
    images, targets = numbers(20, 1, 8, 8), torch.arange(20) % 3
    names = [name for name, _ in network.named_parameters()]

    def loss(*parameters):
        outputs = torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), images)
        return functional.cross_entropy(outputs, targets)

    parameters = tuple(item.detach().clone() for item in network.parameters())
    blocks = torch.autograd.functional.hessian(loss, parameters)
    whole = torch.cat(
        [
            torch.cat([block.reshape(item.numel(), -1) for block in row], 1)
            for item, row in zip(parameters, blocks, strict=True)
        ]
    )
    dataset = torch.utils.data.TensorDataset(images, targets)
    with evaluator_of(nn.CrossEntropyLoss(), network, dataset, batch_size=6).products(ProductSettings()) as shares:
        vector = shares.layout.gaussian(1)
        found = torch.from_numpy(Products(shares)(vector))
    torch.testing.assert_close(found, whole @ torch.from_numpy(vector), rtol=1e-9, atol=1e-11)
