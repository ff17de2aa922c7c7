"""Where a network's parts are: on the worker's device, or wherever callback_fn has put them (PyTorch)."""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from collectors.networks.batches import leaves
from collectors.networks.offloaded_weights import hooks_of, offloaded_values, offloaded_weights
from collectors.networks.torch_network import check_values

from ..errors import CallbackFunctionError
from ..samples.batches import float64_device

_HOST = ("cpu", "meta")
_WITHOUT_CUDA = (
    f"this machine has a GPU, but the installed PyTorch ({torch.__version__}) was built without CUDA, so the network "
    "is measured on the CPU. Install a build for CUDA (https://pytorch.org)."
)


@dataclass(frozen=True)
class Placement:
    inputs: torch.device  # where it takes its batches
    devices: tuple[torch.device, ...]  # all on which it computes, without repetition
    is_kept: bool = False  # whether its parts stay where callback_fn has put them; otherwise all of it is on ``inputs``
    note: str = ""

    @property
    def kinds(self) -> str:
        """The types of its devices, such as "cuda" or "cpu+cuda"."""
        return "+".join(sorted({device.type for device in self.devices}))

    @property
    def uses_cuda(self) -> bool:
        return any(device.type == "cuda" for device in self.devices)


def find_placement(network: nn.Module, device: str, available: Sequence[str] = ()) -> Placement:
    """Returns where a network computes: on a device, or where its parts are if they are on several ones."""
    check_values(network)
    hooks = [hook for _, _, hook in hooks_of(network)]
    executing = [getattr(hook, "execution_device", None) for hook in hooks]
    found = [full_device(place) for place in executing if place is not None]
    found += [parameter.device for parameter in network.parameters()]
    devices = tuple(dict.fromkeys(place for place in found if place.type != "meta"))
    # A network that hooks of Accelerate run (``device_map``) keeps its placement, as one on several devices does.
    if not hooks and len(devices) < 2:
        # Where this PyTorch can use no GPU at all, the CPU takes the place of one.
        is_usable = torch.device(device).type != "cuda" or torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
        own = full_device(device if is_usable else "cpu")
        return Placement(own, (own,), note=_without_float64(network, own) if is_usable else _WITHOUT_CUDA)
    devices = devices or (full_device(device),)
    known = [full_device(name) for name in available]
    foreign = [place for place in devices if known and place.type not in _HOST and place not in known]
    if foreign:
        of_network, of_worker = (", ".join(map(str, places)) for places in (devices, known))
        raise CallbackFunctionError(
            f"the network that callback_fn returned is spread over {of_network}, but this worker has {of_worker} only. "
            "Give each worker enough devices, such as device_ids=[0, 1] with devices_per_worker=2: it sees no other "
            "ones then, and counts its own from cuda:0 on."
        )
    # Its batches go to the device of its first hook, or else of its first parameter.
    return Placement(devices[0], devices, is_kept=True)


def _without_float64(network: nn.Module, device: torch.device) -> str:
    if float64_device(device) == device:
        return ""
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if tensor.dtype in (torch.float64, torch.complex128):
            raise CallbackFunctionError(
                f"the network that callback_fn returned has {name!r} in {str(tensor.dtype).removeprefix('torch.')}, "
                f"which {device} does not have. Convert it (network.float()), or measure on the CPU (device_ids=[0])."
            )
    return (
        f"the network computes on {device} in float32, and what it gives is added up in float64 on the CPU. This was "
        "tried with a stand-in for such a device, and on no real one."
    )


def full_device(device: str | int | torch.device) -> torch.device:
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps", 0) if place.type == "mps" else place


def device_of(outputs: Any) -> torch.device | None:
    """Returns the device of the first tensor among a network's outputs, or None where there is none."""
    values = list(leaves(outputs))
    while values:
        value = values.pop(0)
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(fields := getattr(value, "__dict__", None), dict):  # a dataclass
            values += [item for item in leaves(dict(fields)) if isinstance(item, torch.Tensor)]
    return None


def bring_weights(network: nn.Module, until: contextlib.ExitStack, *, restore: bool) -> None:
    """Puts offloaded weights into host memory, where they can be moved; hooks take them from there until the end."""
    values = offloaded_values(network)
    copies: dict[tuple[int, int], torch.Tensor] = {}
    own = {tensor.data_ptr() for tensor in (*network.parameters(), *network.buffers()) if not tensor.is_meta}

    def movable(value: torch.Tensor) -> torch.Tensor:
        # With ``restore`` the user's own tensors are not written to; files that hooks read never are.
        # What is tied to a parameter outside stays that parameter, which is moved in its place.
        if not restore or value.data_ptr() in own:
            return value
        return copies.setdefault((value.data_ptr(), value.numel()), value.clone())

    by_hook: dict[int, tuple[Any, dict[str, torch.Tensor]]] = {}
    weights = offloaded_weights(network)
    for name, value in values.items():
        hook, tensors = by_hook.setdefault(id(weights[name].hook), (weights[name].hook, {}))
        tensors[weights[name].key] = movable(value)
    # Accelerate tells tied weights by their addresses, and remembers those of tensors that it has freed. A copy that
    # lies at such an address would be taken for another weight, so the hooks start with none.
    addresses: dict[int, Any] = {}
    for hook, tensors in by_hook.values():
        for name in ("weights_map", "tied_params_map"):
            until.callback(setattr, hook, name, getattr(hook, name))
        hook.weights_map = ChainMap(tensors, hook.weights_map)
        if hook.tied_params_map is not None:
            hook.tied_params_map = addresses
