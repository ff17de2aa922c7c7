"""Derivatives of three orders of one layer."""

import torch


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def derivatives(layer, inputs):
    """Returns outputs, all first derivatives of a bent function of them, and those of these along numbers."""
    of = [*layer.parameters(), *([inputs] if inputs.requires_grad else [])]
    outputs = layer(inputs)
    first = torch.autograd.grad(outputs.tanh().pow(2).sum(), of, create_graph=True)
    along = [numbers(*item.shape, seed=seed) for seed, item in enumerate(first)]
    second = torch.autograd.grad(first, of, along, create_graph=True)
    third = torch.autograd.grad(sum(item.pow(2).sum() for item in second), of)
    return [outputs, *first, *second, *third]
