"""A batch's first derivatives with the graph that makes products with second ones of them (PyTorch)."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Collection, Iterator, Sequence
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
from .network import Weights

# What PyTorch says where an operator has no second derivative, with the operator's name where it says that.
_SIGNS = (
    re.compile(r"derivative for '?([\w:.]+)'? is not implemented"),
    re.compile(r"'?(\w+)'? is not differentiable twice"),
    re.compile(r"differentiate twice a function that was marked with @?(once_differentiable)"),
    re.compile(r"(\w+) does not support double backward"),
    re.compile(r"(double backward)"),
)
CHANGED_IN_PLACE = (
    "the network changes in place what its derivatives are computed with. An embedding with max_norm does so where "
    "another layer has its weights too: each forward pass shortens rows of them. Give it max_norm=None, and shorten "
    "the rows after each step of the training"
)
"""What a user should know of a network whose weights change between a forward pass and its derivatives."""


class BatchGraph:
    """The derivatives of a batch's sum of losses, kept for many products, or made for one."""

    def __init__(self, outputs: Any, batch: Batch, total: Total, weights: Weights, matrix: Matrix) -> None:
        self._weights, parameters = weights, weights.tensors
        self._dual: tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]] | None = None
        leaves, structure = tree_flatten(outputs)
        if matrix == "ggn":
            places = [
                index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            recorded = [leaves[index] for index in places]
            for index in places:
                leaves[index] = leaves[index].detach().requires_grad_()
            outputs = tree_unflatten(leaves, structure)
        numerator, weight = total.differentiable(outputs, batch)
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
        if matrix == "ggn":
            self._outputs, inner = recorded, [leaves[index] for index in places]
            slopes = torch.autograd.grad(numerator, inner, create_graph=True, materialize_grads=True)
            # Linear in the dual vectors, so that a derivative by these is the product with the Jacobian itself.
            dual = [torch.zeros_like(output, requires_grad=True) for output in recorded]
            pulled = torch.autograd.grad(recorded, parameters, dual, create_graph=True, allow_unused=True)
            self._inner, self._slopes = inner, list(slopes)
            self._dual = (dual, *_present(pulled, parameters))
            self._first: Sequence[torch.Tensor | None] = ()
        else:
            self._first = torch.autograd.grad(numerator, parameters, create_graph=True, allow_unused=True)

    @property
    def slopes(self) -> list[torch.Tensor]:
        """The first derivatives."""
        if self._dual is not None:
            return [*self._slopes, *self._dual[1]]
        return [slope for slope in self._first if slope is not None]

    def product(self, vectors: Sequence[torch.Tensor], *, keep: bool) -> Sequence[torch.Tensor | None]:
        """Returns the matrix times a vector, both in the parameters' shapes; None for parameters without effect."""
        vectors = self._weights.spread(vectors)
        if self._dual is not None:
            return self._through_outputs(vectors, self._dual, keep=keep)
        pairs = [
            (slope, vector)
            for slope, vector in zip(self._first, vectors, strict=True)
            if slope is not None and slope.requires_grad
        ]
        if not pairs:
            return [None] * len(self._weights.own)
        slopes, along = map(list, zip(*pairs, strict=True))
        found = torch.autograd.grad(slopes, self._weights.tensors, along, retain_graph=keep, allow_unused=True)
        return self._weights.gathered(found)

    def _through_outputs(
        self,
        vectors: Sequence[torch.Tensor],
        dual: tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]],
        *,
        keep: bool,
    ) -> Sequence[torch.Tensor | None]:
        ends, pulled, of = dual
        moved = {id(parameter): vector for parameter, vector in zip(self._weights.tensors, vectors, strict=True)}
        along = torch.autograd.grad(
            pulled, ends, [moved[id(item)] for item in of], retain_graph=True, materialize_grads=True
        )
        bent = [(slope, part) for slope, part in zip(self._slopes, along, strict=True) if slope.requires_grad]
        if not bent:
            return [None] * len(self._weights.own)
        slopes, parts = map(list, zip(*bent, strict=True))
        weighed = torch.autograd.grad(slopes, self._inner, parts, retain_graph=keep, materialize_grads=True)
        found = torch.autograd.grad(self._outputs, self._weights.tensors, weighed, retain_graph=keep, allow_unused=True)
        return self._weights.gathered(found)


def _present(
    found: Sequence[torch.Tensor | None], of: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    pairs = [
        (item, other)
        for item, other in zip(found, of, strict=True)
        if item is not None and item.requires_grad  # the others' outputs are not bent by them
    ]
    return [item for item, _ in pairs], [other for _, other in pairs]


def check_graph(graph: BatchGraph) -> None:
    """Raises RuntimeError where derivatives do not go through every operator, by a walk over the graph."""
    seen, waiting = set(), [slope.grad_fn for slope in graph.slopes if slope.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        # A Function whose backward is ``once_differentiable`` ends the graph without an error, as if it were constant.
        if node.name() == "torch::autograd::Error":
            raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
        waiting += [following for following, _ in node.next_functions if following is not None]


class SavedBytes:
    """Counts the bytes of tensors that are saved for derivatives, each storage once, without those of ``others``."""

    def __init__(self, others: Sequence[torch.Tensor]) -> None:
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in others}
        self.total = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what is saved inside."""

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._seen:
                self._seen.add(storage.data_ptr())
                self.total += storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield


@contextlib.contextmanager
def twice_differentiable(network: nn.Module, devices: Collection[torch.device]) -> Iterator[None]:
    """Lets PyTorch compute with operators that have second derivatives, without compiled code."""
    # Attention's fused kernels, the fast path of transformer layers, cuDNN's recurrent layers and the sparse gradients
    # of embeddings have none.
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(transformers_without_fast_path())
        for layer in network.modules():
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
                layer.sparse = False
                stack.callback(setattr, layer, "sparse", True)
        recurrent = any(isinstance(layer, nn.RNNBase) for layer in network.modules())
        if recurrent and any(device.type == "cuda" for device in devices) and torch.backends.cudnn.enabled:
            torch.backends.cudnn.enabled = False
            stack.callback(setattr, torch.backends.cudnn, "enabled", True)
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
