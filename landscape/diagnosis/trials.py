"""Measures the checkpoints in other ways, to find the one in which the losses are those that training logged."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.buffers_between import has_statistics
from collectors.networks.weight_space import WeightSpace
from collectors.weights.aligned import AlignedState
from workers.pool import StateTask

from ..curvature.experiment import find_out_how_losses_add_up
from ..grid.tasks import openers
from ..record.workers import open_workers
from .diagnosis import Finding
from .measuring import loss_of, warnings_as_texts

# Settings of losses, with what they are where they do nothing.
_NEUTRAL = {"label_smoothing": 0.0, "weight": None, "pos_weight": None}
_Scaling = Callable[[Any], tuple[float, float]]  # of inputs, to what becomes 0 and by what the rest is divided


@dataclass(frozen=True)
class Trial(Finding):
    """Another way to measure, and what is wrong, as the end of a sentence, if the losses then are the logged ones."""

    callback_fn: Callable[[], Any]  # the user's, changed
    options: Mapping[str, Any] = field(default_factory=dict)  # those that are changed


def trials_of(
    callback_fn: Callable[[], Any], result: Any, space: WeightSpace, chosen: Mapping[str, Any], *, is_part: bool
) -> Iterator[Trial]:
    """Yields ways to measure that may mend what differs; ``result`` is what callback_fn returned."""
    if is_part and chosen["samples"] == "first":
        yield Trial(
            "samples",
            "with as many samples that are drawn at random the losses fit, so the first ones are unlike the others",
            "first samples that are like all of them; a data set in the order of its classes begins with one class",
            'pass samples="random" to what measures too, or shuffle the data set once, with a seed.',
            callback_fn,
            {"samples": "random"},
        )
    if isinstance(result, tuple | list) and len(result) == 4:
        yield from _other_losses(callback_fn, result)
        if hasattr(result[1], "register_forward_pre_hook"):
            yield from _other_inputs(callback_fn)
    if has_statistics(tensor.name for tensor in space.buffers) and chosen["buffers"] != "recalibrate":
        yield Trial(
            "network",
            "with the statistics of its normalization layers computed anew the losses fit, so the collected ones suit "
            "neither these weights nor these samples",
            "inputs and a forward that are those of the training, and running statistics that follow the weights "
            "(momentum, train mode during training)",
            "look first whether callback_fn's inputs are normalized, and its network's forward is, as in training: "
            'buffers="recalibrate" would hide what differs there. If nothing does, pass it to what measures too.',
            callback_fn,
            {"buffers": "recalibrate"},
        )


def what_mends(trials: Iterator[Trial], misfit: Callable[[Trial], float]) -> list[Trial]:
    """Returns the trial with the smallest finite misfit of each kind (``about``), the best first."""
    best: dict[str, tuple[float, Trial]] = {}
    for trial in trials:
        try:
            with warnings_as_texts():
                left = misfit(trial)
        except (LandscapeError, TypeError, ValueError):
            continue  # as where a framework cannot recalibrate
        if left < best.get(trial.about, (math.inf,))[0]:
            best[trial.about] = left, trial
    return [trial for _, trial in sorted(best.values(), key=lambda item: item[0])]


def _other_losses(callback_fn: Callable[[], Any], result: Any) -> Iterator[Trial]:
    loss = loss_of(result)
    settings = loss.keywords if isinstance(loss, functools.partial) else {}
    for name, neutral in _NEUTRAL.items():
        value = settings.get(name, getattr(loss, name, None))
        if value is None or (isinstance(value, float) and value == neutral):
            continue

        def changed(name: str = name, neutral: Any = neutral) -> Any:
            model, *others = callback_fn()
            other = copy.copy(getattr(model, "loss_fn", model))
            if isinstance(other, functools.partial):
                return (functools.partial(other, **{name: neutral}), *others)
            if hasattr(other, "_buffers"):
                other._buffers = dict(other._buffers)  # a copy of a module shares them with it
            setattr(other, name, neutral)
            return (other, *others)

        called = getattr(loss.func, "__name__", "the function") if settings else type(loss).__name__
        shown = f"{called}({name}={value if isinstance(value, float) else '...'})"
        yield Trial(
            "loss",
            f"callback_fn's loss is {shown}; with {name}={neutral} the losses fit",
            f"the loss that was trained, which had no {name}",
            f"return the loss without {name}, or the very loss of the training.",
            changed,
        )


def _other_inputs(callback_fn: Callable[[], Any]) -> Iterator[Trial]:
    scalings: Mapping[str, _Scaling] = {
        "standardized to mean 0 and standard deviation 1": lambda x: (float(x.mean()), float(x.std())),
        "scaled to lie between 0 and 1": lambda x: (float(x.min()), float(x.max() - x.min())),
        "scaled to lie between -1 and 1": lambda x: (float(x.max() + x.min()) / 2, float(x.max() - x.min()) / 2),
        "divided by 255": lambda _: (0.0, 255.0),
        "multiplied by 255": lambda _: (0.0, 1 / 255),
    }
    for words, scaling in scalings.items():

        def changed(scaling: _Scaling = scaling) -> Any:
            model, network, *others = callback_fn()
            network = copy.deepcopy(network)  # the user's, which may be the same in each call, gets no hook
            network.register_forward_pre_hook(_ScaledInputs(scaling))
            return (model, network, *others)

        yield Trial(
            "samples",
            f"with inputs {words} the losses fit, so training seems to have normalized its inputs in another way",
            "inputs that are normalized as in training",
            f"give callback_fn's data set the transforms of the training; check tried inputs {words}.",
            changed,
        )


class _ScaledInputs:
    """A hook that scales a network's inputs, always as it did the first ones."""

    def __init__(self, scaling: _Scaling) -> None:
        self._scaling = scaling
        self._scale: tuple[float, float] | None = None

    def __call__(self, _network: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not arguments or not getattr(arguments[0], "is_floating_point", lambda: False)():
            return None
        if self._scale is None:
            self._scale = self._scaling(arguments[0])
        middle, width = self._scale
        return ((arguments[0] - middle) / (width or 1.0), *arguments[1:])


def variance_factors(
    callback_fn: Callable[[], Any], state: AlignedState, chosen: Mapping[str, Any]
) -> dict[str, float]:
    """Returns, by layer, how many times the inputs' variance around the collected mean is off the collected variance.

    The worst channel counts. Only PyTorch's batch normalization is looked at, where the pool is this process.
    """
    seen: dict[str, list[Any]] = {}

    def watched() -> Any:
        model, network, *others = callback_fn()
        network = copy.deepcopy(network)
        for name, layer in network.named_modules():
            if getattr(layer, "running_var", None) is not None and "BatchNorm" in type(layer).__name__:

                def look(layer: Any, inputs: tuple[Any, ...], name: str = name) -> None:
                    channels = inputs[0].detach().transpose(0, 1).flatten(1).float()
                    found = channels.mean(1), channels.var(1, correction=0), layer.running_mean, layer.running_var
                    arrays = [np.array(item.tolist()) for item in found]
                    seen.setdefault(name, []).append((channels.shape[1], layer.eps, *arrays))

                layer.register_forward_pre_hook(look)
        return (model, network, *others)

    try:
        with warnings_as_texts(), open_workers(watched, {**chosen, "compile": False}, points=1) as pool:
            find_out_how_losses_add_up(pool, {0: state})
            seen.clear()  # of other weights
            list(pool.run([StateTask(0, *openers(state, state.space))]))
        return {name: _factor(batches) for name, batches in seen.items()}
    except (LandscapeError, TypeError, ValueError):
        return {}  # as where another framework's network is not watched


def _factor(batches: list[tuple[Any, ...]]) -> float:
    counts, (small, *_), means, variances, (middle, *_), (collected, *_) = zip(*batches, strict=True)
    mean = np.average(means, axis=0, weights=counts)
    here = np.average(variances + (means - mean) ** 2, axis=0, weights=counts)
    larger = (here + (mean - middle) ** 2 + small) / (collected + small)
    return float(max(larger.max(), ((collected + small) / (here + small)).max()))
