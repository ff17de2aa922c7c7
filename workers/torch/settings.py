"""PyTorch's state while something is measured: settings that come back, precision, statistics and random numbers."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.overrides import TorchFunctionMode

from collectors.networks.batches import call_network, mapping_like, tuple_like
from collectors.networks.torch_network import transformers_without_fast_path
from collectors.networks.weight_space import WeightSpace

from ..forked import threads_of
from ..samples.batches import Batch
from ..samples.random_state import random_state_kept

SAME_DRAWS = "under seed_each_point=True each point draws its numbers in one pass over the batches, in order"
"""Why samples cannot be read in passes."""

_FULL = ("ieee", "none")
_ANOTHER = 0x5EED  # so that no draw is that of a user's own torch.manual_seed(0)
_FLOAT32_BYTES = 4
_WITH_TF32 = (8, 0)  # the compute capability of Ampere
_LOSSES = {
    function
    for name, function in vars(functional).items()
    if callable(function) and (name.endswith("_loss") or name.startswith(("cross_entropy", "binary_cross_", "kl_div")))
}


@contextlib.contextmanager
def measurement_settings(devices: Collection[torch.device], threads: int, precision: str = "float32") -> Iterator[None]:
    """No gradients, no autocast, full float32 precision, no autotuning, and a number of CPU threads."""
    # Autocast for "bfloat16" is entered by ``ForwardPass`` alone, so that loss and metrics are computed outside it.
    tf32 = precision == "tf32"
    types = sorted({device.type for device in devices})
    with torch.no_grad(), transformers_without_fast_path(), contextlib.ExitStack() as stack:
        # A network may enter autocast itself. Its copies of the weights are kept until the outermost autocast ends,
        # which is this one; each point has weights of its own, so nothing may be kept.
        for type_ in types:
            stack.enter_context(torch.autocast(type_, enabled=False, cache_enabled=False))
        own_gpu = next((device for device in devices if device.type == "cuda"), None)
        if own_gpu is not None:
            # Streams, graphs and a user's ``.cuda()`` belong to the current device, which is the first one otherwise.
            stack.enter_context(torch.cuda.device(own_gpu))
            _cudnn(stack, tf32=tf32)
        _full_precision(stack, types, tf32=tf32)
        before, threads = torch.get_num_threads(), threads_of(threads)
        if before != threads:
            torch.set_num_threads(threads)
            stack.callback(torch.set_num_threads, before)
        yield


def _cudnn(stack: contextlib.ExitStack, *, tf32: bool = False) -> None:
    """Lets cuDNN compute without autotuning and the same way each time."""
    # Its ``flags`` would do, but they also read ``allow_tf32``, which raises where the user has set ``fp32_precision``.
    cudnn = torch.backends.cudnn
    for name, value in (("enabled", True), ("benchmark", False), ("deterministic", True)):
        set_until_end(stack, cudnn, name, value)
    with contextlib.suppress(RuntimeError):  # see _full_precision
        set_until_end(stack, cudnn, "allow_tf32", tf32)


def _full_precision(stack: contextlib.ExitStack, types: Collection[str], *, tf32: bool = False) -> None:
    """Lets float32 be float32, but on GPUs TensorFloat-32 where that was asked for."""
    # PyTorch's older function sets several of the newer attributes, also back to what only one of them had been.
    all_owners = _precision_owners(("cuda", "cpu"), with_views=False)
    stack.callback(_put_back, [(owner, owner.fp32_precision) for owner in all_owners])
    with contextlib.suppress(RuntimeError):  # the user has set the newer attributes, and PyTorch does not allow both
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, before)
    if tf32:
        # The older attribute alone leaves the CPU's precision as it is; the newer ones agree with it afterwards.
        with contextlib.suppress(RuntimeError):
            set_until_end(stack, torch.backends.cuda.matmul, "allow_tf32", True)
    of_gpu = _precision_owners(("cuda",))[1:] if tf32 else []
    for owner in _precision_owners(types):
        if any(owner is item for item in of_gpu):
            set_until_end(stack, owner, "fp32_precision", "tf32")
        elif owner.fp32_precision not in _FULL:
            set_until_end(stack, owner, "fp32_precision", "ieee")


def _put_back(before: Sequence[tuple[Any, str]]) -> None:
    for owner, value in before:
        if owner.fp32_precision != value:
            owner.fp32_precision = value


def _precision_owners(types: Collection[str], *, with_views: bool = True) -> list[Any]:
    """Returns what has an ``fp32_precision`` (since PyTorch 2.9), the general before the particular."""
    backends = torch.backends
    owners: list[Any] = [backends]
    if "cuda" in types:
        owners += [backends.cuda.matmul, *(getattr(backends.cudnn, name, None) for name in ("conv", "rnn"))]
    if set(types) != {"cuda"}:
        mkldnn = getattr(backends, "mkldnn", None)
        # oneDNN's own sets the one of all.
        owners += [mkldnn] if with_views else []
        owners += [getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    return [owner for owner in owners if hasattr(owner, "fp32_precision")]


def set_until_end(stack: contextlib.ExitStack, owner: Any, name: str, value: object) -> None:
    before = getattr(owner, name)
    if before != value:
        setattr(owner, name, value)
        stack.callback(setattr, owner, name, before)


def check_precision(precision: str, devices: Collection[torch.device], space: WeightSpace) -> None:
    """Raises ValueError where the devices cannot compute in a precision, or it would change nothing for the weights."""
    if precision == "float32":
        return
    foreign = [device for device in devices if device.type not in ("cpu", "cuda")]
    if foreign:
        raise ValueError(
            f'precision="{precision}" is available on CPUs and NVIDIA GPUs, but not on {foreign[0]}. Use '
            'precision="float32", or measure on the CPU (device_ids=[0]).'
        )
    others = 'Use precision="float32"' + (' or precision="bfloat16".' if precision == "tf32" else ".")
    gpus = [device for device in devices if device.type == "cuda"]
    if precision == "tf32" and not gpus:
        raise ValueError(
            f'precision="tf32" needs an NVIDIA GPU, but the network is measured on {", ".join(map(str, devices))}, '
            f"where there is no TensorFloat-32. {others}"
        )
    for device in gpus:
        with torch.cuda.device(device):
            capable = torch.cuda.is_bf16_supported()
            if precision == "tf32":
                capable = torch.cuda.get_device_capability() >= _WITH_TF32
        if not capable:
            raise ValueError(
                f'precision="{precision}" is not available on {device} ({torch.cuda.get_device_name(device)}). {others}'
            )
    types = {info.dtype for info in space.parameters}
    changed = {"float32"} if precision == "tf32" else {"float32", "float16"}
    if not types & changed:
        raise ValueError(
            f'precision="{precision}" changes nothing: the weights are in {" and ".join(sorted(types))}. Use '
            'precision="float32", which leaves a network as it was built, or convert it (network.float()).'
        )


@contextlib.contextmanager
def in_bfloat16(types: Collection[str]) -> Iterator[None]:
    """Autocast on devices of some types; it keeps no copies of weights, because each point has weights of its own."""
    with contextlib.ExitStack() as stack:
        for type_ in types:
            stack.enter_context(torch.autocast(type_, torch.bfloat16, cache_enabled=False))
        yield


def at_least_float32(value: Any) -> Any:
    """Returns outputs with each tensor of fewer digits than float32 as float32; what has no such tensor, itself."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.element_size() < _FLOAT32_BYTES else value
    if isinstance(value, Mapping):
        items = dict(value.items())
    elif isinstance(value, tuple | list):
        items = dict(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        return value
    wide = {key: at_least_float32(item) for key, item in items.items()}
    if all(wide[key] is item for key, item in items.items()):
        return value
    if isinstance(value, Mapping):
        return mapping_like(value, wide)
    if isinstance(value, tuple | list):
        return list(wide.values()) if isinstance(value, list) else tuple_like(value, list(wide.values()))
    changed = copy.copy(value)
    for name, item in wide.items():
        object.__setattr__(changed, name, item)  # it may be frozen
    return changed


def with_float32_weights(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a loss whose class weights are at least float32; PyTorch takes no others beside float32 outputs."""
    if not isinstance(loss, nn.Module) or at_least_float32(loss._buffers) is loss._buffers:
        return loss
    # A shallow copy: a loss that looks at the network (a penalty on its weights) must see it move.
    changed = copy.copy(loss)
    changed._buffers = at_least_float32(loss._buffers)
    return changed


class Float32Losses(TorchFunctionMode):
    """While it is entered, PyTorch's loss functions get at least float32, for networks that compute their own loss."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _LOSSES:
            args, kwargs = at_least_float32(args), at_least_float32(kwargs or {})
        return func(*args, **(kwargs or {}))


def normalization_layers(network: nn.Module) -> list[_NormBase]:
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _NormBase) and layer.track_running_stats and layer.running_mean is not None
    ]


def check_at_hand(layers: Sequence[_NormBase]) -> None:
    """Checks that running statistics are where they can be recalibrated."""
    if any(layer.running_mean is not None and layer.running_mean.is_meta for layer in layers):
        raise ValueError(
            'buffers="recalibrate" is not available where normalization statistics are offloaded; load the network '
            'without offload_buffers, or use buffers="fixed" (the origin\'s statistics everywhere).'
        )


def recalibrate(network: Callable[..., Any], layers: Sequence[_NormBase], batches: Iterable[Batch]) -> None:
    """Sets running statistics to their cumulative average over the batches; the layers alone are in train mode."""
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
        for number, batch in enumerate(batches, start=1):
            for layer in layers:
                # None makes batch normalization average by itself, also in a layer that is used twice in one pass.
                layer.momentum = None if isinstance(layer, _BatchNorm) else 1 / number
            call_network(network, batch.inputs)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()


class RandomNumbers:
    """Seeds the generators of PyTorch (CPU and used GPUs), NumPy and Python for each batch; None seeds nothing."""

    def __init__(self, seed: int | None, devices: Collection[torch.device]) -> None:
        others = sorted({device.type for device in devices} - {"cpu", "cuda"})
        if others and seed is not None:
            raise ValueError(f"seed_each_point=True is available on CPUs and NVIDIA GPUs, but not on {others[0]}.")
        self._seed = seed
        self._gpus = [device for device in devices if device.type == "cuda"]

    def notes(self, batches: Sequence[Batch]) -> list[str]:
        if self._seed is None:
            return []
        size = max(batch.size for batch in batches)
        return [
            f"the same random numbers are drawn at every point (seed_each_point=True, seed {self._seed}), anew for "
            f"each of the {len(batches)} batches of at most {size} samples, which are kept: the loss is one draw of a "
            "random one, and points differ by their weights alone."
        ]

    @contextlib.contextmanager
    def kept(self, settings: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Enters the settings, at whose end all generators are put back, which are the process's own."""
        with settings, contextlib.nullcontext() if self._seed is None else random_state_kept():
            yield

    def numbered(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function for one pass over the batches, in order; what follows a batch draws after it."""
        if self._seed is None:
            return forward
        numbers = itertools.count()

        def run(*inputs: Any, **named_inputs: Any) -> Any:
            self.start_batch(next(numbers))
            return forward(*inputs, **named_inputs)

        return run

    def start_batch(self, number: int) -> None:
        """Lets what follows draw the numbers of the data set's own batch with this number; does nothing unseeded."""
        if self._seed is None:
            return
        value = _seed_of_batch(self._seed, number)
        torch.default_generator.manual_seed(value)
        for gpu in self._gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)  # noqa: NPY002


@functools.lru_cache(maxsize=1 << 12)
def _seed_of_batch(seed: int, number: int) -> int:
    # By the seed and the batch's place among the data set's own batches, and by nothing else: not by the point, by what
    # was measured before, or by the worker.
    # PyTorch's generator of the CPU takes 32 bits.
    return int(np.random.SeedSequence([_ANOTHER, seed, number]).generate_state(1)[0])
