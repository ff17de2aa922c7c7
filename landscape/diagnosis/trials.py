"""Measures the checkpoints in other ways, to find the one in which the losses are those that training logged."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.errors import LandscapeError
from collectors.networks.buffers_between import has_statistics
from collectors.networks.weight_space import WeightSpace

from .diagnosis import Finding
from .facts import loss_of
from .measuring import warnings_as_texts

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
    for name, neutral in _NEUTRAL.items():
        value = getattr(loss, name, None)
        if value is None or (isinstance(value, float) and value == neutral):
            continue

        def changed(name: str = name, neutral: Any = neutral) -> Any:
            model, *others = callback_fn()
            other = copy.copy(getattr(model, "loss_fn", model))
            if hasattr(other, "_buffers"):
                other._buffers = dict(other._buffers)  # a copy of a module shares them with it
            setattr(other, name, neutral)
            return (other, *others)

        shown = f"{type(loss).__name__}({name}={value if isinstance(value, float) else '...'})"
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
