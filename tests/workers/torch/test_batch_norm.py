"""Batch normalization with derivatives of ours: those of PyTorch's, of three orders."""

import itertools

import pytest
import torch
from three_orders import derivatives, numbers
from torch import nn
from torch.nn import functional

from workers.torch.batch_norm import PlainBatchNorm

# Layers, and shapes of their inputs.
FORMS = {
    "rows": (nn.BatchNorm1d(4), (5, 4)),
    "line": (nn.BatchNorm1d(4, eps=1e-2), (3, 4, 5)),
    "plane": (nn.BatchNorm2d(3), (4, 3, 2, 5)),
    "space": (nn.BatchNorm3d(2), (2, 2, 2, 3, 2)),
    "without weights": (nn.BatchNorm2d(3, affine=False), (4, 3, 2, 5)),
}


def filled(layer):
    """Returns a layer in eval mode and float64, with numbers that tell each other apart."""
    for seed, item in enumerate(layer.double().eval().state_dict().values()):
        if item.is_floating_point():
            item.copy_(numbers(*item.shape, seed=seed).abs() + 0.1)
    return layer


# Without weights there is nothing but inputs to differentiate by.
RECORDED = [item for item in itertools.product(FORMS, (False, True)) if item != ("without weights", False)]


@pytest.mark.parametrize(("name", "recorded"), RECORDED)
def test_derivatives_of_three_orders_are_those_of_pytorch(name, recorded):
    layer, shape = FORMS[name]
    layer, inputs = filled(layer), numbers(*shape, seed=7).requires_grad_(recorded)
    expected = derivatives(layer, inputs)
    with PlainBatchNorm():
        assert type(layer(inputs).grad_fn).__name__ == "AddcmulBackward0"
        found = derivatives(layer, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_the_form_of_memory_stays(form):
    layer = nn.BatchNorm2d(6).eval()
    inputs = torch.randn(2, 6, 5, 5).to(memory_format=form)
    with PlainBatchNorm():
        outputs = layer(inputs)
    torch.testing.assert_close(outputs, layer(inputs))
    assert outputs.is_contiguous(memory_format=form)


def test_statistics_of_the_batch_lower_precision_and_maps_are_left_to_pytorch():
    inputs = numbers(6, 3, 2, 2).float().requires_grad_()
    mean, variance = torch.zeros(3), torch.ones(3)
    with PlainBatchNorm():
        trained = functional.batch_norm(inputs, mean.clone(), variance.clone(), training=True)
        untracked = nn.BatchNorm2d(3, track_running_stats=False).eval()(inputs)
        low = functional.batch_norm(inputs.bfloat16(), mean, variance)
        with torch.autocast("cpu", torch.bfloat16):
            cast = functional.batch_norm(inputs, mean, variance)
        each = torch.func.vmap(lambda image: functional.batch_norm(image[None], mean, variance))(inputs.detach())
    assert [type(item.grad_fn).__name__ for item in (trained, untracked, low, cast)] == ["NativeBatchNormBackward0"] * 4
    torch.testing.assert_close(each[:, 0], functional.batch_norm(inputs.detach(), mean, variance))
