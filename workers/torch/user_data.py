"""A user's data set as a PyTorch network takes it: pairs of arrays, batches of other forms, and inputs by example."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from collectors.networks.batches import is_graph, map_leaves
from collectors.networks.torch_network import to_tensor, unwrap

from ..errors import CallbackFunctionError, SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..samples.array_samples import count_rows, is_pair_of_arrays, rows_of
from ..samples.batches import WRAP, Batch, MakeBatch, SampleDigest, as_batch, as_whole_batch, map_batch
from ..samples.data_sets import find_data_sets
from ..samples.samples import Samples
from ..samples.torch_samples import read_samples
from ..users_code import warn_and_note
from .losses import OwnLoss, own_loss_of

_TARGETS = ("targets", "target", "labels", "label", "y")
_SAMPLES_TRIED = 8
_OTHERWISE = "Return an OwnLoss in place of the loss if that is not what you mean."


class Rows(Dataset[Any]):
    """The samples of (inputs, targets), which are tensors or nested tuples, lists and dictionaries of them."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self._pair = inputs, targets
        self._count = count_rows(self._pair)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return rows_of(self._pair, index)


def changes_batches(run: Callable[[Batch], object], samples: Samples) -> bool:
    """Returns whether a user's code leaves a batch other than it was: in place, or without what it took out of it."""
    batch = samples.batches(_SAMPLES_TRIED)[0]
    tried = copied(batch)
    # What is wrong with it, or meaningless for so few samples, shows where it is measured.
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(tried)
    before, after = SampleDigest(), SampleDigest()
    before.add(batch)
    after.add(tried)
    return before.hexdigest() != after.hexdigest()


def copied(batch: Batch) -> Batch:
    """Returns a batch with arrays and containers of its own, which may be changed."""
    return map_batch(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf), batch)


def read_user_data(
    dataset: object, options: MeasurementOptions, memory: SampleMemory, *, network: nn.Module, own_loss: OwnLoss | None
) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order, and returns them with notes for the user; see ``read_samples``."""
    notes: list[str] = []
    if own_loss is not None:
        return read_samples(dataset, options, functools.partial(as_whole_batch, samples=own_loss.samples), memory)
    samples, more = read_samples(_as_torch_data(dataset, network, notes), options, _batch_maker(network, notes), memory)
    return samples, [*notes, *more]


def _as_torch_data(dataset: object, network: nn.Module, notes: list[str]) -> object:
    """Returns a pair of NumPy arrays as tensors of the types that network and loss take, any other data set itself."""
    if not isinstance(dataset, tuple | list) or all(isinstance(part, torch.Tensor) for part in dataset):
        return dataset
    if not is_pair_of_arrays(dataset):
        return dataset
    own = {item.dtype for item in network.parameters() if item.is_floating_point()}
    dtype = own.pop() if len(own) == 1 else None
    wide = None if dtype is None else torch.promote_types(dtype, torch.float32)
    changed: set[str] = set()
    pair = (
        map_leaves(lambda leaf: _as_tensor(leaf, dtype, changed, targets=False), dataset[0]),
        map_leaves(lambda leaf: _as_tensor(leaf, wide, changed, targets=True), dataset[1]),
    )
    if changed:
        notes.append(f"of the NumPy arrays, {' and '.join(sorted(changed))}, as the network and its loss take them.")
    return pair if all(isinstance(part, torch.Tensor) for part in pair) else Rows(*pair)


def _batch_maker(network: nn.Module, notes: list[str]) -> MakeBatch:
    """Returns what makes a batch of (inputs, targets) of what the data set gives; notes tell how it was understood."""

    def make(item: object, _: int | None) -> Batch:
        found = _split(item, network)
        if found is None:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise SamplesError(_no_pair(item, network))
            if isinstance(item[0], np.ndarray):
                raise SamplesError(
                    "dataset must give tensors to a PyTorch network, but gave NumPy arrays: convert them "
                    "(torch.from_numpy), let a DataLoader do so, or give one pair (inputs, targets) of arrays with all "
                    f"samples. If they are single samples: {WRAP}."
                )
            return as_batch(item)
        inputs, targets, text = found
        if text not in notes:
            warn_and_note(notes, text)
        return as_batch((inputs, targets))

    return make


def _as_tensor(leaf: Any, dtype: torch.dtype | None, changed: set[str], *, targets: bool) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    if leaf.dtype.kind not in "fiubc" and leaf.dtype.name != "bfloat16":
        raise SamplesError(
            f"dataset must hold arrays of numbers, but holds one of {leaf.dtype}; convert it to numbers (tokens, "
            "classes), or use a DataLoader whose collate_fn makes tensors."
        )
    wanted = dtype if leaf.dtype.kind == "f" else None
    if leaf.dtype.kind in "iu" and (targets or (leaf.dtype.kind == "u" and leaf.dtype.itemsize > 1)):
        wanted = torch.int64  # which PyTorch's losses take
        leaf = leaf.astype(np.int64, copy=False)
    tensor = to_tensor(leaf)
    if wanted is None or tensor.dtype == wanted:
        return tensor
    kind = "targets" if targets else "inputs"
    changed.add(f"the {kind} of {leaf.dtype.name} were converted to {str(wanted).removeprefix('torch.')}")
    return tensor.to(wanted)


def _split(item: object, network: nn.Module) -> tuple[Any, Any, str] | None:
    """Returns inputs, targets and how they were found; None where a network's ``forward`` does not say."""
    # It leaves no doubt where it takes all entries of a dictionary or of a longer tuple but one, by their names or
    # their number: that one is the targets.
    try:
        takes = dict(inspect.signature(network.forward).parameters)
    except (TypeError, ValueError):
        return None
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in takes.values()):
        return None
    if isinstance(item, Mapping) and item:
        rest = [key for key in item if key not in takes]
        needed = {name for name, parameter in takes.items() if parameter.default is parameter.empty}
        if len(rest) != 1 or len(item) < 2 or not needed <= item.keys():
            return None
        inputs = {key: value for key, value in item.items() if key != rest[0]}
        names = ", ".join(inputs)
        text = f"batches are dictionaries: the network gets {names} by name, and the loss gets {rest[0]!r} as targets"
        return inputs, item[rest[0]], f"{text}. {_OTHERWISE}"
    if isinstance(item, tuple | list) and len(item) > 2:
        ordered = [parameter for parameter in takes.values() if parameter.kind is not parameter.KEYWORD_ONLY]
        if len(ordered) != len(item) - 1 or any(parameter.default is not parameter.empty for parameter in ordered):
            return None
        names = ", ".join(parameter.name for parameter in ordered)
        text = f"batches are tuples of {len(item)}: the network gets the first {len(item) - 1} ({names})"
        text += ", and the loss gets the last one as targets"
        return tuple(item[:-1]), item[-1], f"{text}. {_OTHERWISE}"
    return None


def _no_pair(item: object, network: nn.Module) -> str:
    """Returns the text of the error for a batch that is no pair: what it is, and the OwnLoss that takes it."""
    shown, call, targets = f"a {type(item).__name__}", "network(batch)", "batch"
    if isinstance(item, Mapping):
        keys = [repr(key) for key in item]
        shown += f" of {', '.join(keys[:6])}{', ...' if len(keys) > 6 else ''}"
        likely = next((key for key in reversed(keys) if key.strip("'") in _TARGETS), keys[-1] if keys else "'targets'")
        others = [key for key in keys if key != likely] or ["'inputs'"]
        call, targets = f"network(batch[{others[0]}])", f"batch[{likely}]"
    elif isinstance(item, tuple | list):
        shown += f" of {len(item)}"
        call, targets = "network(batch[0])", "batch[0]"
        if len(item) > 2:
            call, targets = f"network(*batch[:{len(item) - 1}])", "batch[-1]"
    elif is_graph(item):
        call, targets = "network(batch.x, batch.edge_index, batch.batch)", "batch.y"
    own = " A network that computes its own loss from such a batch needs no step: return None in place of the loss."
    return (
        f"dataset must give batches of (inputs, targets), but gave {shown}. Say how the loss of "
        f"{type(network).__name__} comes from such a batch, and return it in place of the loss:\n"
        "    from workers import OwnLoss\n"
        "    def step(network, batch):\n"
        f"        outputs = {call}\n"
        f"        return loss(outputs, {targets}), outputs\n"
        "    ... return OwnLoss(step), network, dataset, metrics  # metrics get (outputs, batch)\n"
        "(docs/losses.md has more.)" + (own if isinstance(item, Mapping) else "") + f" Or {WRAP}, or give pairs."
    )


def example_inputs(model: object, network: nn.Module, dataset: object, count: int) -> Any:
    """Returns the inputs of the first samples: a tensor, a tuple of positions, or a dict of keywords."""
    module = unwrap(network)
    own_loss = own_loss_of(model, module)
    # Of several data sets, the first one counts.
    first = find_data_sets(dataset, MeasurementOptions(count))[0]
    samples, _ = read_user_data(first.data, first.options, SampleMemory(), network=module, own_loss=own_loss)
    batch = samples.own_batches[0]
    if own_loss is None:
        return tuple(batch.inputs) if isinstance(batch.inputs, list) else batch.inputs
    seen: list[dict[str, Any]] = []
    # Called once, to see what it takes; the user's network stays as it is.
    twin = copy.deepcopy(module).eval()
    signature = inspect.signature(twin.forward)

    def look(_module: nn.Module, positions: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        found: dict[str, Any] = {}
        for name, value in signature.bind(*positions, **keywords).arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                raise TypeError(f"forward takes any number of positions (*{name}), which cannot be named.")
            found.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
        seen.append(found)

    twin.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with torch.no_grad():
            own_loss.forward(twin, batch.inputs[0])
    except Exception as error:
        if not seen:
            raise CallbackFunctionError(f"the network's own loss raised {type(error).__name__}: {error}") from error
    if not seen:
        raise CallbackFunctionError(
            "the network's own loss never calls the network itself, so that its inputs are not known; give them by "
            "hand (example=, in Python)."
        )
    return seen[0]
