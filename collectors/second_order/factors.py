"""The two factors of a layer's curvature: from what it saw in a step, over all processes, to their damped inverses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..validation import check_int, wrong_type, wrong_value

# A layer's block of the empirical Fisher matrix is taken as a Kronecker product: of A, the mean of a a' over its
# inputs a, and of G, the mean of g g' over the gradients g of the samples' losses with respect to its outputs (Martens
# & Grosse 2015, Grosse & Martens 2016; THOR: Chen et al. 2021). Only diagonal blocks are kept, of ``split_dim`` rows.
SAMPLES, MINDSPORE_GPU = "samples", "mindspore_gpu"
# Where a weight's state has the sums of a begun step, so that checkpoints have them.
_A, _G, _SUMS = "recorded_a", "recorded_g", "recorded_sums"


@dataclass
class Observation:
    """What calls of a layer and the gradients of its outputs tell; sums, which add up over calls and batches."""

    # Of a a' in diagonal blocks (blocks, size, size); for an Embedding how often each row was looked up, shape (rows,).
    a: torch.Tensor
    g: torch.Tensor  # of g g' in diagonal blocks, of the loss as it was differentiated
    a_weight: float  # what to divide ``a`` by
    g_weight: float
    samples: float  # the length of the inputs' first dimension
    calls: float = 1.0
    batch: float = 0.0  # how many samples' losses the loss averages, once ``g`` is that of each sample's own loss

    def of_each_sample(self, batch: float) -> Observation:
        """Returns it with G of each sample's own loss instead of the mean over ``batch`` samples (1: a sum)."""
        return replace(self, g=self.g * batch**2, batch=batch)


@dataclass
class Factors:
    a: torch.Tensor  # as in ``Observation``, but the mean
    g: torch.Tensor  # the mean over the gradients of each sample's own loss
    a_positions: float  # how often a sample uses the weights: its square root multiplies ``a`` before the damping
    g_positions: float


def recorded(state: dict[str, Any]) -> Observation | None:
    """Returns what a begun step has seen of the weight with this state, None where it is nothing."""
    return Observation(state[_A], state[_G], *state[_SUMS]) if _SUMS in state else None


def add_recorded(state: dict[str, Any], seen: Observation) -> None:
    sums = [seen.a_weight, seen.g_weight, seen.samples, seen.calls]
    if _SUMS in state:
        state[_A].add_(seen.a)
        state[_G].add_(seen.g)
        sums = [before + new for before, new in zip(state[_SUMS], sums, strict=True)]
    else:
        state[_A], state[_G] = seen.a, seen.g
    state[_SUMS] = [float(number) for number in sums]


def multiply_recorded(state: dict[str, Any], factor: float) -> None:
    """Makes a weight's state what it were if the loss had been multiplied by a factor."""
    if _G in state:
        state[_G] = state[_G] * factor**2


def forget_recorded(state: dict[str, Any]) -> None:
    for name in (_A, _G, _SUMS):
        state.pop(name, None)


def weight_of(layer: nn.Module) -> nn.Parameter:
    weight = layer._parameters["weight"]
    assert weight is not None
    return weight


def widths(layer: nn.Module) -> tuple[int, int]:
    """Returns how many rows the whole A and the whole G of a layer have."""
    weight = weight_of(layer)
    return (weight.shape[0], weight.shape[1]) if isinstance(layer, nn.Embedding) else (weight[0].numel(), len(weight))


def shapes(layer: nn.Module, variant: str, split: int) -> tuple[torch.Size, torch.Size]:
    """Returns the shapes of a layer's A and G in diagonal blocks; the A of an Embedding is a vector."""
    a_width, g_width = widths(layer)
    a_shape = (a_width,) if isinstance(layer, nn.Embedding) else _block_shape(a_width, split)
    return torch.Size(a_shape), torch.Size(_block_shape(g_width, _g_split(layer, variant, split)))


def observe(layer: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor, variant: str, split: int) -> Observation:
    """Returns what a call tells, by its inputs (with or without a samples' axis) and the loss's gradient by outputs."""
    by_mindspore = variant == MINDSPORE_GPU
    if isinstance(layer, nn.Embedding):
        samples = len(inputs) if inputs.dim() else 1
        a = torch.bincount(inputs.reshape(-1), minlength=layer.num_embeddings).to(gradient.dtype)
        a_weight = samples if by_mindspore else inputs.numel()
    elif isinstance(layer, nn.Conv2d):
        if inputs.dim() == 3:
            inputs, gradient = inputs[None], gradient[None]
        samples, images = len(inputs), inputs.to(gradient.dtype)
        if by_mindspore:
            # The factors of the batch's mean image and mean gradient.
            images, gradient = images.mean(0, keepdim=True), gradient.mean(0, keepdim=True)
        rows = _patches(layer, images, by_mindspore)
        gradient = gradient.flatten(2).transpose(1, 2)
        a, a_weight = _gram(rows, split), len(rows)
    else:
        samples = len(inputs) if inputs.dim() > 1 else 1
        rows = inputs.reshape(-1, inputs.shape[-1]).to(gradient.dtype)
        # MindSpore divides by the width of the inputs, where the number of samples was meant.
        a, a_weight = _gram(rows, split), rows.shape[1] if by_mindspore else len(rows)
    gradients = gradient.reshape(-1, gradient.shape[-1])
    return Observation(a, _gram(gradients, _g_split(layer, variant, split)), a_weight, len(gradients), samples)


def checked_split(split_indices: Iterable[int] | None, layers: int) -> list[int]:
    """Returns the index of the last layer of each bucket, that of the last layer of all included."""
    last = layers - 1
    if split_indices is None:
        return [last]
    if isinstance(split_indices, str | bytes) or not isinstance(split_indices, Iterable):
        raise wrong_type("split_indices", "a list of layers' indices or None", split_indices)
    given = [
        check_int(f"split_indices[{place}]", index, minimum=0, maximum=last)
        for place, index in enumerate(split_indices)
    ]
    if any(second <= first for first, second in itertools.pairwise(given)):
        raise wrong_value("split_indices", "indices that grow", given)
    return given if given and given[-1] == last else [*given, last]


def exchange(
    recorded: Mapping[nn.Module, Observation | None],
    shapes: Mapping[nn.Module, tuple[torch.Size, torch.Size]],
    last_of_bucket: list[int],
    group: Any,
) -> dict[nn.Module, Observation]:
    """Returns the sums over all processes of what layers recorded, with G of each sample's own loss."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1):
        return {layer: seen for layer, seen in recorded.items() if seen is not None}
    found: dict[nn.Module, Observation] = {}
    for first, end in itertools.pairwise([0, *(last + 1 for last in last_of_bucket)]):
        bucket = list(itertools.islice(recorded.items(), first, end))
        if not bucket:
            continue
        weight = weight_of(bucket[0][0])
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        parts: list[torch.Tensor] = []
        sums: list[list[float]] = []
        for layer, seen in bucket:
            if seen is None:
                # A process without recordings of a layer takes part with zeros.
                parts += [torch.zeros(shape, dtype=dtype, device=weight.device).flatten() for shape in shapes[layer]]
                sums.append([0.0] * 5)
            else:
                parts += [seen.a.to(dtype).flatten(), seen.g.to(dtype).flatten()]
                sums.append([seen.a_weight, seen.g_weight, seen.samples, seen.calls, seen.batch])
        flat = torch.cat(parts)
        numbers = torch.tensor(sums, dtype=torch.float64, device=weight.device)
        dist.all_reduce(flat, group=group)
        dist.all_reduce(numbers, group=group)
        pieces = iter(flat.split_with_sizes([part.numel() for part in parts]))
        for (layer, _), (a_weight, g_weight, samples, calls, batch) in zip(bucket, numbers.tolist(), strict=True):
            a, g = (next(pieces).view(shape) for shape in shapes[layer])
            if calls:
                found[layer] = Observation(a, g, a_weight, g_weight, samples, calls, batch)
    return found


def factors_of(layer: nn.Module, seen: Observation, variant: str) -> Factors:
    """Returns a step's factors from the sum of its observations ``of_each_sample``."""
    a_weight = seen.batch if variant == MINDSPORE_GPU and isinstance(layer, nn.Embedding) else seen.a_weight
    a, g = seen.a / a_weight, seen.g / seen.g_weight
    if variant == SAMPLES:
        return Factors(a, g, seen.g_weight / seen.samples, seen.g_weight / seen.samples)
    if isinstance(layer, nn.Conv2d):
        return Factors(a, g, seen.a_weight / seen.calls, seen.g_weight / seen.calls)
    return Factors(a, g, 1.0, 1.0)


def whole_factors(layer: nn.Module, seen: Observation, variant: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns A and G as matrices, with zeros beside their diagonal blocks; of an Embedding's A the diagonal."""
    dense: Any = torch.block_diag
    factors, (a_width, g_width) = factors_of(layer, seen, variant), widths(layer)
    a = factors.a if factors.a.dim() == 1 else dense(*factors.a)[:a_width, :a_width]
    return a, dense(*factors.g)[:g_width, :g_width]


def inverses(layer: nn.Module, factors: Factors, damping: float, variant: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (sqrt(T) A + sqrt(damping) I)^-1, and of G in diagonal blocks; of an Embedding's A the diagonal."""
    for name, factor in (("A", factors.a), ("G", factors.g)):
        if not bool(torch.isfinite(factor).all()):
            raise ArithmeticError(f"the not finite {name}")
    scale = 1 / math.sqrt(factors.a_positions)
    a_damping, g_damping = math.sqrt(damping / factors.a_positions), math.sqrt(damping / factors.g_positions)
    if isinstance(layer, nn.Embedding):
        a_inverse = scale / (factors.a + a_damping)
    else:
        a_inverse = scale * _inverse("A", factors.a, a_damping)
    if variant == MINDSPORE_GPU and isinstance(layer, nn.Embedding):
        # MindSpore multiplies L^-1 by itself, not by its transpose.
        root = torch.linalg.inv(torch.linalg.cholesky(_damped(factors.g, g_damping)))
        return a_inverse, root @ root
    return a_inverse, scale * _inverse("G", factors.g, g_damping)


def precondition(gradient: torch.Tensor, a_inverse: torch.Tensor, g_inverse: torch.Tensor) -> torch.Tensor:
    """Returns G^-1 gradient A^-1 in the gradient's shape; for an Embedding (whose A is a vector) A^-1 gradient G^-1."""
    if a_inverse.dim() == 1:
        return _times_blocks(a_inverse[:, None] * gradient, g_inverse)
    matrix = _times_blocks(gradient.flatten(1), a_inverse)
    return _times_blocks(matrix.T, g_inverse.transpose(1, 2)).T.reshape(gradient.shape)


def _gram(rows: torch.Tensor, split: int) -> torch.Tensor:
    """Returns the diagonal blocks of rows' rows, shape (blocks, size, size), of rows (n, d); size is min(d, split)."""
    width = rows.shape[1]
    if width <= split:
        return (rows.T @ rows)[None]
    blocks = -(-width // split)
    parts = F.pad(rows, (0, blocks * split - width)).reshape(-1, blocks, split)
    return torch.einsum("nki,nkj->kij", parts, parts)


def _g_split(layer: nn.Module, variant: str, split: int) -> int:
    """Returns the size of a diagonal block of G: MindSpore on a GPU keeps that of an Embedding whole."""
    return layer.embedding_dim if isinstance(layer, nn.Embedding) and variant == MINDSPORE_GPU else split


def _block_shape(width: int, split: int) -> tuple[int, int, int]:
    """Returns the shape of the diagonal blocks of a matrix of shape (width, width)."""
    size = min(width, split)
    return -(-width // size), size, size


def _patches(layer: nn.Conv2d, images: torch.Tensor, by_mindspore: bool) -> torch.Tensor:
    """Returns what each output position of a convolution sees, of shape (samples * positions, channels * kernel)."""
    mode = "constant" if layer.padding_mode == "zeros" or by_mindspore else layer.padding_mode
    padding, dilation = layer._reversed_padding_repeated_twice, layer.dilation
    if by_mindspore:
        # On a GPU it always pads to "same".
        padding, dilation = [], (1, 1)
        sides = zip(images.shape[:1:-1], layer.kernel_size[::-1], layer.stride[::-1], strict=True)
        for length, kernel, stride in sides:
            total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            padding += [total // 2, total - total // 2]
    columns = F.unfold(F.pad(images, padding, mode), layer.kernel_size, dilation, 0, layer.stride)
    return columns.transpose(1, 2).flatten(0, 1)


def _damped(blocks: torch.Tensor, damping: float) -> torch.Tensor:
    return blocks + damping * torch.eye(blocks.shape[-1], dtype=blocks.dtype, device=blocks.device)


def _inverse(name: str, blocks: torch.Tensor, damping: float) -> torch.Tensor:
    for dtype in (blocks.dtype, torch.float64):
        root, failed = torch.linalg.cholesky_ex(_damped(blocks.to(dtype), damping))
        if not bool(failed.any()):
            # In rows, as a loaded state is: other strides give other bits.
            return torch.cholesky_inverse(root).to(blocks.dtype).contiguous()
    raise ArithmeticError(f"the not positive definite {name}")


def _times_blocks(matrix: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    count, size, _ = blocks.shape
    if count == 1:
        return matrix @ blocks[0]
    width = matrix.shape[1]
    parts = F.pad(matrix, (0, count * size - width)).reshape(-1, count, size)
    return torch.einsum("nki,kij->nkj", parts, blocks).flatten(1)[:, :width]
