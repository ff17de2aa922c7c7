"""A batch's first derivatives with the graph that makes products with second ones of them (PyTorch)."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from collectors.networks.torch_network import transformers_without_fast_path

from ...curvature.products import Matrix
from ...errors import CurvatureError
from ...measuring.memory_shortage import is_memory_shortage
from ...measuring.totals import Total
from ...samples.batches import Batch
from ..settings import set_until_end
from ..snapshot import values_kept
from .network import Weights

# What PyTorch says where an operator has no second derivative, with the operator's name where it says that.
_SIGNS = (
    re.compile(r"derivative for '?([\w:.]+)'? is not implemented"),
    re.compile(r"'?(\w+)'? is not differentiable twice"),
    re.compile(r"differentiate twice a function that was marked with @?(once_differentiable)"),
    re.compile(r"(\w+) does not support double backward"),
    re.compile(r"(double backward)"),
)
_ONCE = torch.autograd.function.once_differentiable(lambda *_: None).__code__
_OURS = re.compile(r"(torch|workers)\.")  # whose Functions are known to be differentiable twice, or marked
# By which share of the weights they are moved; which share of a gradient is rounding; up to which share two differences
# are one; and from which on a product is another one. Half a Hessian that is lost is more than that.
_STEP, _NOISE, _SMOOTH, _WRONG = 1e-3, 1e-5, 0.1, 0.3
CHANGED_IN_PLACE = (
    "the network changes in place what its derivatives are computed with. An embedding with max_norm does so where "
    "another layer has its weights too: each forward pass shortens rows of them. Give it max_norm=None, and shorten "
    "the rows after each step of the training"
)
"""What a user should know of a network whose weights change between a forward pass and its derivatives."""


class BatchGraph:
    """The derivatives of a batch's sum of losses, kept for many products, or made for one."""

    def __init__(self, outputs: Any, batch: Batch, total: Total, weights: Weights, matrix: Matrix) -> None:
        self._weights, self._is_ggn, self._by = weights, matrix == "ggn", weights.tensors
        self._pulled: list[tuple[int, torch.Tensor]] = []
        if self._is_ggn:
            leaves, structure = tree_flatten(outputs)
            places = [
                index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            self._outputs = [leaves[index] for index in places]
            for index in places:
                leaves[index] = leaves[index].detach().requires_grad_()
            self._by = [leaves[index] for index in places]
            outputs = tree_unflatten(leaves, structure)
        numerator, weight = total.differentiable(outputs, batch)
        self._loss = getattr(numerator, "grad_fn", None)
        self.counts = weight is None or float(weight) != 0
        """Whether any sample counts; if none does, there are no products."""
        if not self.counts:
            return
        if not isinstance(numerator, torch.Tensor) or not numerator.requires_grad:
            raise CurvatureError(
                "the loss does not depend on the network's weights in a way that PyTorch can differentiate: it was "
                "computed under no_grad, from detached tensors or from whole numbers (such as argmax). Give a loss "
                "that can be trained with, or use trace_by_lines, which needs no gradients."
            )
        own = set(map(id, weights.tensors))
        if self._is_ggn and any(id(getattr(node, "variable", None)) in own for node in graph_nodes([self._loss])):
            raise CurvatureError(
                'matrix="ggn" needs a loss that is a function of (outputs, targets) alone, but this one depends on the '
                "weights beside the outputs (a penalty on them, or outputs that are neither tensors nor tuples, lists "
                'or dictionaries of these): use matrix="hessian".'
            )
        self._slopes = torch.autograd.grad(
            numerator, self._by, create_graph=True, allow_unused=True, materialize_grads=self._is_ggn
        )
        if self._is_ggn:
            # Linear in the dual vectors, so that a derivative by these is the product with the Jacobian itself.
            self._dual = [torch.zeros_like(output, requires_grad=True) for output in self._outputs]
            pulled = torch.autograd.grad(
                self._outputs, weights.tensors, self._dual, create_graph=True, allow_unused=True
            )
            # The others' outputs are not bent by them.
            self._pulled = [
                (number, item) for number, item in enumerate(pulled) if item is not None and item.requires_grad
            ]

    @functools.cached_property
    def functions(self) -> list[type[Any]]:
        """The ``torch.autograd.Function`` of users on the way from the weights to the loss, each once."""
        made = (getattr(type(node), "_forward_cls", None) for node in graph_nodes([self._loss]))
        return [item for item in dict.fromkeys(made) if item is not None and not _OURS.match(item.__module__)]

    @property
    def slopes(self) -> list[torch.Tensor]:
        return [slope for slope in (*self._slopes, *(item for _, item in self._pulled)) if slope is not None]

    def product(self, vectors: Sequence[torch.Tensor], *, keep: bool) -> Sequence[torch.Tensor | None]:
        """Returns the matrix times a vector, both in the parameters' shapes; None for parameters without effect."""
        along: Sequence[torch.Tensor] = self._weights.spread(vectors)
        if self._is_ggn:
            moved = [along[number] for number, _ in self._pulled]
            pulled = [item for _, item in self._pulled]
            along = torch.autograd.grad(pulled, self._dual, moved, retain_graph=True, materialize_grads=True)
        pairs = [
            (slope, part)
            for slope, part in zip(self._slopes, along, strict=True)
            if slope is not None and slope.requires_grad
        ]
        if not pairs:
            return [None] * len(self._weights.own)
        slopes, parts = map(list, zip(*pairs, strict=True))
        found = torch.autograd.grad(
            slopes, self._by, parts, retain_graph=keep, allow_unused=True, materialize_grads=self._is_ggn
        )
        if self._is_ggn:
            found = torch.autograd.grad(
                self._outputs, self._weights.tensors, found, retain_graph=keep, allow_unused=True
            )
        return self._weights.gathered(found)


def graph_nodes(begin: Iterable[Any], since: int = 0) -> Iterator[Any]:
    """Yields the nodes of a graph, each once; what is behind a node that is older than a number is left out."""
    seen, waiting = set(), [node for node in begin if node is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if not since or node._sequence_nr() >= since:
            waiting += [following for following, _ in node.next_functions if following is not None]


def check_graph(graph: BatchGraph) -> None:
    """Raises RuntimeError where derivatives do not go through every operator, by a walk over the graph."""
    # A Function whose backward is ``once_differentiable`` ends the graph without an error, as if it were constant; and
    # without a trace too, where what it is multiplied by is constant, as at the end of a loss.
    marked = any(getattr(function.backward, "__code__", None) is _ONCE for function in graph.functions)
    nodes = graph_nodes(slope.grad_fn for slope in graph.slopes)
    if marked or any(node.name() == "torch::autograd::Error" for node in nodes):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def check_functions(graph: BatchGraph, weights: Weights, gradient: Callable[[], Sequence[torch.Tensor | None]]) -> None:
    """Raises CurvatureError where a user's Function makes products that differences of gradients contradict."""
    # The network is moved and put back; ``gradient`` returns that of the batch's sum of losses where it is.
    generator = torch.Generator().manual_seed(0)
    scale = _STEP * max(_length(weights.own), 1.0)
    drawn = [torch.randn(item.shape, generator=generator, dtype=torch.float64).to(item) for item in weights.own]
    moves = [item * (scale / _length(drawn)) for item in drawn]

    def difference(share: float) -> torch.Tensor:
        """Returns half the difference of the gradients a share of the moves ahead and behind."""
        sides = []
        for sign in (share, -share):
            with values_kept(weights.own):
                with torch.no_grad():
                    for item, move in zip(weights.own, moves, strict=True):
                        item.add_(sign * move)
                sides.append(weights.flat(gradient()))
        return (sides[0] - sides[1]) / 2

    made = weights.flat(graph.product(moves, keep=True))
    # A step of a quarter: where both say the same, the loss is smooth enough to be asked.
    whole, quarter = (difference(share) / share for share in (1.0, 0.25))
    size = max(float(made.norm()), float(whole.norm()))
    noise = _NOISE * float(weights.flat(gradient()).norm())
    smooth = float((whole - quarter).norm()) < _SMOOTH * size
    if smooth and size > noise and float((made - whole).norm()) > _WRONG * size:
        names = ", ".join(function.__name__ for function in graph.functions)
        raise CurvatureError(
            f"the network has no second derivative, because the backward of {names} is not differentiated as it "
            "should be: products with the Hessian are not the differences of gradients. It probably computes with "
            "detached tensors or under no_grad. Give that Function a backward of differentiable operations on what "
            "save_for_backward keeps, or use trace_by_lines, which needs no gradients."
        )


def _length(parts: Sequence[torch.Tensor]) -> float:
    return float(torch.stack([part.detach().norm() for part in parts]).norm())


@contextlib.contextmanager
def counting_saved_bytes(others: Sequence[torch.Tensor]) -> Iterator[dict[int, int]]:
    """Yields the bytes of each storage that is saved inside for derivatives, by address, and 0 for ``others``."""
    saved = {tensor.untyped_storage().data_ptr(): 0 for tensor in others}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved.setdefault(storage.data_ptr(), storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


@contextlib.contextmanager
def twice_differentiable(network: nn.Module, devices: Collection[torch.device]) -> Iterator[None]:
    """Lets PyTorch compute with operators that have second derivatives, without compiled code."""
    # Attention's fused kernels, the fast path of transformer layers, cuDNN's recurrent layers and the sparse gradients
    # of embeddings have none.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
        transformers_without_fast_path(),
        contextlib.ExitStack() as stack,
    ):
        for layer in network.modules():
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                set_until_end(stack, layer, "sparse", False)
            if isinstance(layer, nn.RNNBase) and any(device.type == "cuda" for device in devices):
                set_until_end(stack, torch.backends.cudnn, "enabled", False)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def changes_in_place(error: RuntimeError) -> bool:
    """Returns whether an error is PyTorch's about what changed between a forward pass and its derivatives."""
    return "modified by an inplace operation" in str(error)


@contextlib.contextmanager
def second_derivative_errors(matrix: Matrix) -> Iterator[None]:
    """Turns errors about derivatives that do not exist into CurvatureError, which names the operator and the remedy."""
    try:
        yield
    except RuntimeError as error:
        if changes_in_place(error):
            raise CurvatureError(f"{CHANGED_IN_PLACE}, or use trace_by_lines, which needs no gradients.") from error
        found = next((match for sign in _SIGNS if (match := sign.search(str(error)))), None)
        if found is None or is_memory_shortage(error):
            raise
        operator = found[1]
        attention = (
            "let it use plain attention (torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or "
            'attn_implementation="eager" in Transformers), '
            if "attention" in operator
            else ""
        )
        other = 'use matrix="ggn", which bends the loss alone, ' if matrix == "hessian" else ""
        raise CurvatureError(
            f"the network has no second derivative, because {operator} has none ({error}). To mend that, {attention}"
            f"replace that operator by others or give its Function a backward that can be differentiated, {other}or "
            "use trace_by_lines, which needs no gradients."
        ) from error
