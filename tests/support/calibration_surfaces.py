"""Surfaces whose every point is known: eleven analytic families, and networks that were really trained.

Parameters are drawn from seeds. Half of the surfaces have the default 40 x 40 points, half 65 x 65.
"""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits

OF_EACH_FAMILY = 28
SIZES = (40, 65)

_SAMPLES = 256
_CHUNK = 64  # what lies between two layers fits into the cache, which is more than twice as fast
_STEPS = 60
# Widths of the hidden layers, and the activation.
_NETWORKS = (
    ((16,), torch.relu),
    ((16,), torch.tanh),
    ((24, 16), torch.relu),
    ((24, 16), torch.tanh),
    ((12, 12, 12), torch.relu),
    ((12, 12, 12), torch.nn.functional.gelu),
)


@dataclass(frozen=True)
class KnownSurface:
    """One surface: where it comes from, and its loss at every point, float64[size, size]."""

    family: str
    loss: np.ndarray


def all_surfaces():
    """Yields 308 analytic surfaces, then 48 planes through trained networks."""
    yield from analytic_surfaces()
    yield from network_surfaces()


def analytic_surfaces(of_each=OF_EACH_FAMILY, sizes=SIZES):
    for index, (family, function) in enumerate(_FAMILIES.items()):
        for number in range(of_each):
            generator = np.random.default_rng([index, number])
            axis = np.linspace(-1, 1, sizes[number % len(sizes)])
            x, y = np.meshgrid(axis, axis)
            angle, (shift_x, shift_y) = generator.uniform(0, np.pi), generator.uniform(-0.4, 0.4, 2)
            u = np.cos(angle) * (x - shift_x) + np.sin(angle) * (y - shift_y)
            v = np.cos(angle) * (y - shift_y) - np.sin(angle) * (x - shift_x)
            yield KnownSurface(family, function(u, v, generator))


def _bowl(u, v, generator):
    """A power of a quadratic, between cone and quartic: what no cubic spline knows; condition number 1 to 300."""
    quadratic = u**2 + _between(generator, 1, 300) * v**2
    return _between(generator, 1e-3, 0.3) + (quadratic + 0.003) ** generator.uniform(0.5, 1.9)


def _curved_valley(u, v, generator):
    """Rosenbrock's, between flat and steep."""
    bend, steep = generator.uniform(0.2, 1.0), _between(generator, 3, 100)
    return 0.05 + (u - 0.5) ** 2 + steep * (v - bend * u**2) ** 2


def _kinks(u, v, generator):
    """Sums of ReLUs of straight lines, over a bowl: what a network's piecewise linear parts leave."""
    loss = 0.1 + 0.5 * (u**2 + v**2)
    for _ in range(generator.integers(1, 9)):
        slope_u, slope_v, offset = generator.normal(size=3)
        loss = loss + np.maximum(0, slope_u * u + slope_v * v + 0.5 * offset)
    return loss


def _narrow_hole(u, v, generator):
    """A bowl with a round or sharp-edged pit of a fourth to a twelfth of the plane's width, longer in one direction."""
    width, deep = _between(generator, 0.08, 0.25), generator.uniform(0.3, 1.0)
    place_u, place_v = generator.uniform(-0.7, 0.7, 2)
    square = ((u - place_u) ** 2 + (v - place_v) ** 2 / generator.uniform(1, 4)) / width**2
    return 1.05 + 0.5 * (u**2 + v**2) - deep * np.exp(-(square ** generator.integers(1, 3)))


def _missing(u, v, generator):
    """A bowl that is NaN or infinite on a disc, a strip, or beyond a line."""
    places = (u**2 + v**2, np.abs(u + 0.3 * v**2), u + generator.uniform(-0.3, 0.3) * v)
    inside = places[generator.integers(3)] < _between(generator, 0.05, 0.4)
    return np.where(inside, generator.choice([np.nan, np.inf]), 0.1 + u**2 + v**2 + 0.3 * np.sin(3 * u + v))


def _saddle(u, v, generator):
    """A saddle of sines and cubes, shifted to positive losses."""
    wave_u, wave_v = generator.uniform(0.5, 3, 2)
    loss = 1 - np.cos(wave_u * u) - generator.uniform(0.3, 2) * (1 - np.cos(wave_v * v)) + generator.normal() * u * v**2
    return loss - loss.min() + _between(generator, 1e-2, 1)


def _periodic(u, v, generator):
    """Rastrigin's: a bowl with one to four waves."""
    waves_u, waves_v = np.pi * generator.uniform(0.5, 2, 2)
    high = _between(generator, 0.02, 0.5)
    return 0.1 + u**2 + v**2 + high * (2 - np.cos(2 * waves_u * u) - np.cos(2 * waves_v * v))


def _steep_wall(u, v, generator):
    """A sigmoid of 0.02 to 0.3 width beside a gentle slope."""
    wide = _between(generator, 0.02, 0.3)
    bent = u + generator.uniform(-0.4, 0.4) * v**2 - generator.uniform(-0.3, 0.3)
    return 0.1 + generator.uniform(0.05, 0.5) * (u**2 + v**2) + 0.5 * (1 + np.tanh(bent / wide))


def _plateau(u, v, generator):
    """A bowl that saturates at the loss of guessing."""
    scale, high = _between(generator, 0.5, 30), 2.3
    return _between(generator, 1e-3, 0.1) + high * (1 - np.exp(-scale * (u**2 + generator.uniform(0.2, 3) * v**2)))


def _log_range(u, v, generator):
    """Three to eight decades."""
    decades = generator.uniform(1.5, 4)
    return 10 ** (decades * (u + generator.uniform(-0.5, 0.5) * np.sin(generator.uniform(1, 3) * v) + 0.3 * v**2))


def _two_minima(u, v, generator):
    """The lower one of two rotated bowls, which meet in a ridge that is sharp or round."""
    apart, more = generator.uniform(0.3, 0.7), generator.uniform(0, 0.3)
    first = (u - apart) ** 2 + _between(generator, 0.5, 5) * v**2
    second = (u + apart) ** 2 + _between(generator, 0.5, 5) * v**2 + more
    sharp = _between(generator, 3, 300)
    return 0.02 - np.logaddexp(-sharp * first, -sharp * second) / sharp + np.log(2) / sharp


_FAMILIES = {
    "bowl": _bowl,
    "curved valley": _curved_valley,
    "ReLU kinks": _kinks,
    "narrow hole": _narrow_hole,
    "saddle": _saddle,
    "periodic": _periodic,
    "NaN or infinite": _missing,
    "steep wall": _steep_wall,
    "plateau": _plateau,
    "log range": _log_range,
    "two minima": _two_minima,
}


def _between(generator, low, high):
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


def network_surfaces(networks=12):
    """Yields four planes for each of some small networks, trained on scikit-learn's digits with Adam.

    They are: random filter-normalised directions at the final weights, the same at a tenth of the training and three
    times as near, the two principal directions of the path, and the plane through three checkpoints.
    """
    digits = load_digits()
    data = torch.tensor(digits.data[:_SAMPLES] / 16, dtype=torch.float32), torch.tensor(digits.target[:_SAMPLES])
    for number in range(networks):
        widths, activation = _NETWORKS[number % len(_NETWORKS)]
        torch.manual_seed(number)
        sizes = (64, *widths, 10)
        path = _trained([(wide, deep) for deep, wide in itertools.pairwise(sizes)], activation, data)
        final, early = path[-1], path[len(path) // 10]
        differences = [_flat(weights) - _flat(final) for weights in path[:-1]]
        principal = torch.linalg.svd(torch.stack(differences), full_matrices=False)
        extent = principal.S[:2] / len(differences) ** 0.5 * 2
        planes = [
            (final, [_random_direction(final) for _ in range(2)]),
            (early, [_random_direction(early) / 3 for _ in range(2)]),
            (final, [extent[axis] * principal.Vh[axis] for axis in range(2)]),
            (path[len(path) // 2], [_flat(path[place]) - _flat(path[len(path) // 2]) for place in (1, -1)]),
        ]
        for plane, (origin, directions) in enumerate(planes):
            size = SIZES[(number + plane) % len(SIZES)]
            measured = _measured(origin, directions, size, partial(_losses, activation=activation, data=data))
            yield KnownSurface("trained network", measured)


def _trained(shapes, activation, data):
    """Returns the weights after each step, each a list of matrices whose last column is the bias."""
    weights = [torch.randn(wide, deep + 1) * (2 / deep) ** 0.5 for wide, deep in shapes]
    for matrix in weights:
        matrix[:, -1] = 0
        matrix.requires_grad_()
    optimizer = torch.optim.Adam(weights, lr=0.02)
    path = []
    for _ in range(_STEPS):
        optimizer.zero_grad()
        _losses([matrix[None] for matrix in weights], activation, data).sum().backward()
        optimizer.step()
        path.append([matrix.detach().clone() for matrix in weights])
    return path


def _losses(weights, activation, data):
    """Returns the mean cross-entropy of each of some networks; weights are float32[networks, wide, deep + 1]."""
    inputs, targets = data
    hidden = inputs.T[None]
    for index, matrix in enumerate(weights):
        hidden = matrix[..., :-1] @ hidden + matrix[..., -1:]
        hidden = activation(hidden) if index < len(weights) - 1 else hidden
    chosen = targets.expand(len(weights[0]), 1, -1)
    return (hidden.logsumexp(1) - hidden.gather(1, chosen)[:, 0]).mean(1)


def _flat(weights):
    return torch.cat([matrix.reshape(-1) for matrix in weights])


def _random_direction(weights):
    rows = [torch.randn_like(matrix) for matrix in weights]
    for row, matrix in zip(rows, weights, strict=True):
        row[:, -1] = 0
        row *= matrix[:, :-1].norm(dim=1, keepdim=True) / row.norm(dim=1, keepdim=True)
    return _flat(rows)


@torch.no_grad()
def _measured(origin, directions, size, losses):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    points = torch.stack([x.reshape(-1), y.reshape(-1)], 1)
    found = []
    for chunk in points.split(_CHUNK):
        flat = _flat(origin) + chunk @ torch.stack(directions)
        parts = flat.split([matrix.numel() for matrix in origin], 1)
        found.append(losses([part.reshape(-1, *matrix.shape) for part, matrix in zip(parts, origin, strict=True)]))
    return torch.cat(found).reshape(size, size).double().numpy()
