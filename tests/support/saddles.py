"""A saddle that is known to be one: the minimum of a small network, in a larger one whose units are copies.

Source: Fukumizu and Amari 2000 (such points are critical, and many of them are saddles).
"""

import functools

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

LOSS = nn.functional.mse_loss


def samples():
    """Returns (inputs, targets) in float64: more than one hidden unit can learn."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    return x, torch.tanh(1.5 * x[:, :1]) + 0.7 * torch.sin(2 * x[:, 1:2]) + 0.3 * x[:, 2:3] * x[:, 3:4]


def build(hidden):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()


@functools.cache
def _minimum():
    small, (x, y) = build(1), samples()
    optimizer = torch.optim.LBFGS(
        small.parameters(), max_iter=3000, tolerance_grad=1e-13, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = LOSS(small(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return small


def saddle():
    """Returns a network of two equal hidden units, where the gradient is zero and three eigenvalues are negative."""
    small, large = _minimum(), build(2)
    with torch.no_grad():
        large[0].weight.copy_(small[0].weight.repeat(2, 1))
        large[0].bias.copy_(small[0].bias.repeat(2))
        large[2].weight.copy_(small[2].weight.repeat(1, 2) / 2)
        large[2].bias.copy_(small[2].bias)
    return large


def callback_fn():
    return nn.MSELoss(), build(2), samples(), {}


def exact_hessian(network, loss, inputs, targets):
    """Returns the Hessian by PyTorch, over all trainable parameters in the network's order."""
    named = {name: item for name, item in network.named_parameters() if item.requires_grad}

    def at(flat):
        parts = flat.split([item.numel() for item in named.values()])
        values = {name: part.reshape(item.shape) for (name, item), part in zip(named.items(), parts, strict=True)}
        return loss(torch.func.functional_call(network, values, (inputs,)), targets)

    flat = torch.cat([item.detach().reshape(-1) for item in named.values()])
    with sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.functional.hessian(at, flat)
