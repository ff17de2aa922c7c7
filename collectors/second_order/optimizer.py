"""Thor: the optimizer, in any PyTorch training loop."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..networks.torch_network import unwrap
from ..validation import check_bool, check_choice, check_float, check_int, wrong_type
from .factors import (
    MINDSPORE_GPU,
    SAMPLES,
    Observation,
    add_recorded,
    checked_split,
    exchange,
    factors_of,
    forget_recorded,
    inverses,
    multiply_recorded,
    observe,
    precondition,
    recorded,
    shapes,
    weight_of,
    whole_factors,
)
from .recorders import attach
from .schedule import Schedule

_KEPT_BY_EARLIER_VERSIONS = ("a_factor", "g_factor", "positions")
# From here: Thor._refresh, Thor.step, PyTorch's two wrappers of it, and who called those.
_USERS_CALL = 6


@dataclass(frozen=True)
class NamedParameter:
    """What ``decay_filter`` is asked about: a parameter, with its name in ``named_parameters``."""

    name: str
    shape: tuple[int, ...]
    requires_grad: bool


class Thor(torch.optim.Optimizer):
    """Momentum on gradients that are divided by the curvature of each layer.

    Every ``frequency``-th optimizer step, beginning with the first, the hooks of Linear, Conv2d (one group) and
    Embedding layers record their inputs and the gradients of their outputs, and the factors A and G (see ``factors``)
    are inverted. A weight's gradient g becomes G^-1 g A^-1, that of LayerNorm g / (g^2 / batch + sqrt(damping)). All
    others (biases, BatchNorm, layers of other kinds or with a shared weight) keep theirs. Then come weight decay,
    clipping and momentum, as in SGD.

    Its state (step, momentum, inverses, and what a begun step has recorded) is in ``state_dict()``.

    Args:
        net: the network; its parameters that require gradients are trained.
        learning_rate: a number; a sequence or tensor with one number for each step, whose last one holds on; or a
            function of the step (the first is 0). Schedulers that set ``param_groups`` need one number.
        damping: added to the factors (its square root to each), in the same forms; more than 0.
        momentum: of the moving sum of updates; at least 0.
        weight_decay: this times the weights is added to the preconditioned gradients.
        loss_scale: what a loop of your own multiplies the loss with: gradients and factors are divided by it. With a
            ``torch.amp.GradScaler`` give that instead. ``Model`` tells the optimizer itself and this is not used.
        batch_size: how many samples' losses the loss of an optimizer step averages; None takes what the layers saw.
            Give 1 for a loss that adds over samples (``Model`` knows), and the number of samples where layers see each
            sample as several rows.
        use_nesterov: whether the momentum is Nesterov's.
        decay_filter: asked about each parameter (``name``, ``shape``, ``requires_grad``): whether it decays.
        split_indices: where the layers are parted into buckets for the exchange between processes, as in MindSpore:
            the index of the last layer of each bucket. None exchanges all at once.
        enable_clip_grad: whether each parameter's update is clipped to norm 1 before the momentum.
        frequency: how many steps use the same factors; at least 2.
        factors: "samples": over all samples and positions, as K-FAC and as MindSpore on Ascend; or "mindspore_gpu": as
            MindSpore on a GPU, with its deviations (see the documentation).
        split_dim: the rows of a diagonal block of a factor; couplings between blocks are left out.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value, or the network has nothing to train.
    """

    def __init__(
        self,
        net: nn.Module,
        learning_rate: Any,
        damping: Any,
        momentum: float,
        weight_decay: float = 0.0,
        loss_scale: float | torch.amp.GradScaler = 1.0,
        batch_size: int | None = None,
        use_nesterov: bool = False,
        decay_filter: Callable[[Any], bool] = lambda _: True,
        split_indices: Iterable[int] | None = None,
        enable_clip_grad: bool = False,
        frequency: int = 100,
        *,
        factors: str = SAMPLES,
        split_dim: int = 128,
    ) -> None:
        self._recorders = attach(net)
        self._learning_rate = Schedule("learning_rate", learning_rate)
        self._damping = Schedule("damping", damping, positive=True)
        self._scaler = loss_scale if isinstance(loss_scale, torch.amp.GradScaler) else None
        least = torch.finfo(torch.float32).tiny
        self._loss_scale = 1.0 if self._scaler else check_float("loss_scale", loss_scale, minimum=least)
        self._given_size = None if batch_size is None else float(check_int("batch_size", batch_size, minimum=1))
        self._batch_size = self._given_size
        self._variant = check_choice("factors", factors, (SAMPLES, MINDSPORE_GPU))
        if not callable(decay_filter):
            raise wrong_type("decay_filter", "a function of a parameter", decay_filter)
        trained = {name: parameter for name, parameter in unwrap(net).named_parameters() if parameter.requires_grad}
        if not trained:
            raise ValueError("net must have a parameter that requires gradients, but has none. Unfreeze a layer.")
        self._split_indices = checked_split(split_indices, len(self._recorders.layers))
        self._process_group = net.process_group if isinstance(net, nn.parallel.DistributedDataParallel) else None
        self._names = {parameter: name for name, parameter in trained.items()}
        self._decays = {
            parameter: bool(decay_filter(NamedParameter(name, tuple(parameter.shape), True)))
            for name, parameter in trained.items()
        }
        self._norms = {
            parameter
            for module in unwrap(net).modules()
            if isinstance(module, nn.LayerNorm)
            for parameter in module._parameters.values()
        }
        self._last_pass: dict[nn.Module, tuple[int, float]] = {}  # of each layer, and its samples in that
        # In a training that diverges it is all weights, so each is named once.
        self._named_as_failed: set[str] = set()
        self._named_as_plain: set[str] = set()
        self._complete = False
        super().__init__(
            list(trained.values()),
            {
                "lr": self._learning_rate.at(0),
                "momentum": check_float("momentum", momentum, minimum=0.0),
                "weight_decay": check_float("weight_decay", weight_decay, minimum=0.0),
                "nesterov": check_bool("use_nesterov", use_nesterov),
                "clip": check_bool("enable_clip_grad", enable_clip_grad),
                "frequency": check_int("frequency", frequency, minimum=2),
                "split_dim": check_int("split_dim", split_dim, minimum=1),
                "factors": self._variant,
                "step": 0,
                "batch": 0.0,
            },
        )
        self._complete = True
        self._recorders.listener = weakref.ref(self)

    def get_frequency(self) -> int:
        """Returns how many steps use the same factors."""
        return int(self.param_groups[0]["frequency"])

    def factors(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Returns A and G of each layer by its name, as the gradients of the present step gave them.

        They are there after a backward pass that is due (see ``wants_records``) and before ``step``. Only their
        diagonal blocks are computed; beside them are zeros. The A of an Embedding is a vector, its matrix's diagonal.

        Raises:
            RuntimeError: nothing is recorded.
        """
        found = {
            name: whole_factors(layer, seen, self._variant)
            for name, layer in self._recorders.layers.items()
            if (seen := self._recorded(layer)) is not None
        }
        if not found:
            raise RuntimeError(
                "no factors are recorded. They are there between a backward pass that wants_records() and step()."
            )
        return found

    def wants_records(self) -> bool:
        """Whether the step to come refreshes the factors."""
        group = self.param_groups[0]
        return bool(group["step"] % group["frequency"] == 0)

    def watch_loss(self, scaler: torch.amp.GradScaler, loss_is_sum: bool) -> None:
        """Learns from ``Model`` who scales the loss (and divides the gradients), and whether the loss adds."""
        self._scaler = scaler
        # The Model before may have had another loss.
        self._batch_size = 1.0 if loss_is_sum else self._given_size

    def gradients_multiplied(self, factor: float) -> None:
        """Learns from ``Model`` that it multiplied the gradients of the step to come, after they were recorded."""
        for state in self.state.values():
            multiply_recorded(state, factor)

    def record(self, layer: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adds what a layer saw to what the step has recorded; the layers' hooks call it."""
        weight = weight_of(layer)
        if weight not in self._names:
            return
        scale = self._loss_scale if self._scaler is None else float(self._scaler.get_scale())
        gradient = gradient / scale if gradient.dtype == torch.float64 else gradient.float() / scale
        seen = observe(layer, inputs, gradient, self._variant, self.param_groups[0]["split_dim"])
        add_recorded(self.state[weight], replace(seen, samples=self._new_samples(layer, seen.samples)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, and what was recorded with them."""
        self._forget()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuses parameters beside those of the network.

        Raises:
            ValueError: the optimizer is complete.
        """
        if self._complete:
            raise ValueError(
                "Thor has the parameters of its network and takes no others. Unfreeze layers before thor(net, ...), "
                "or make a new optimizer."
            )
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with a state, bit for bit.

        Raises:
            ValueError: it is of other parameters, or of other ``factors``.
        """
        groups = state_dict["param_groups"]
        variant = groups[0].get("factors") if groups else None
        if variant != self._variant:
            raise ValueError(
                f"the state is of an optimizer with factors={variant!r}, but this one has {self._variant!r}."
            )
        super().load_state_dict(state_dict)
        # PyTorch casts to the parameters' element type, which loses digits of the inverses of float16 weights.
        for group, saved in zip(self.param_groups, groups, strict=True):
            for parameter, key in zip(group["params"], saved["params"], strict=True):
                for name, value in state_dict["state"].get(key, {}).items():
                    if isinstance(value, torch.Tensor):
                        self.state[parameter][name] = value.detach().to(parameter.device, copy=True)
        for state in self.state.values():
            for name in _KEPT_BY_EARLIER_VERSIONS:
                state.pop(name, None)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes a step with the gradients that are there, or with those of a closure, which is called once.

        Returns:
            What the closure returned.

        Raises:
            RuntimeError: there are no gradients, or they came while no hook listened; gradients are sparse; the network
                has a newer Thor.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_ready()
        group = self.param_groups[0]
        step = group["step"]
        if not self._learning_rate.constant:
            group["lr"] = self._learning_rate.at(step)
        damping = self._damping.at(step)
        if self.wants_records():
            self._refresh(damping)
        for parameter in group["params"]:
            if parameter.grad is not None:
                self._move(parameter, group, damping)
        group["step"] = step + 1
        return loss

    def _check_ready(self) -> None:
        if self._recorders.listener() is not self:
            raise RuntimeError("the network has a newer Thor, which its layers tell what they see. Use that one.")
        given = [parameter for parameter in self._names if parameter.grad is not None]
        if not given:
            raise RuntimeError("step() needs gradients, but no parameter has one. Call loss.backward() before it.")
        sparse = [self._names[parameter] for parameter in given if parameter.grad.is_sparse]  # type: ignore[union-attr]
        if sparse:
            raise RuntimeError(f"Thor takes no sparse gradients, but {sparse} have such. Use Embedding(sparse=False).")

    def _refresh(self, damping: float) -> None:
        found = {layer: self._recorded(layer) for layer in self._recorders.layers.values()}
        due = [layer for layer in found if weight_of(layer).grad is not None]
        if due and all(seen is None for seen in found.values()):
            raise RuntimeError(
                "no layer has recorded anything, though this step refreshes the factors. The gradients must come from "
                "a forward and backward pass of the network after thor(net, ...) and after the last step() or "
                "zero_grad()."
            )
        blocks = {layer: shapes(layer, self._variant, self.param_groups[0]["split_dim"]) for layer in found}
        shared = exchange(found, blocks, self._split_indices, self._process_group)
        if shared:
            self.param_groups[0]["batch"] = max(seen.batch for seen in shared.values())
        failed = {}
        for layer, seen in shared.items():
            weight = weight_of(layer)
            try:
                pair = inverses(layer, factors_of(layer, seen, self._variant), damping, self._variant)
            except ArithmeticError as error:
                failed[self._names[weight]] = str(error)
            else:
                self.state[weight]["a_inverse"], self.state[weight]["g_inverse"] = pair
        treated = {weight_of(layer) for layer in shared}
        plain = [
            name
            for parameter, name in self._names.items()
            if parameter.dim() > 1 and parameter.grad is not None and parameter not in treated
        ]
        self._warn(failed, plain)
        self._forget()

    def _warn(self, failed: dict[str, str], plain: list[str]) -> None:
        failed = {name: reason for name, reason in failed.items() if name not in self._named_as_failed}
        plain = [name for name in plain if name not in self._named_as_plain]
        self._named_as_failed.update(failed)
        self._named_as_plain.update(plain)
        if failed:
            which = ", ".join(f"{reason} of {name}" for name, reason in failed.items())
            warnings.warn(
                f"at step {self.param_groups[0]['step']} factors cannot be inverted: {which}. The inverses of an "
                "earlier refresh stay, or without one the plain gradient; this is said once for each weight. If the "
                "loss grows, use a larger damping, a smaller learning rate or frequency, or enable_clip_grad=True.",
                UserWarning,
                stacklevel=_USERS_CALL,
            )
        if plain:
            warnings.warn(
                f"Thor uses the plain gradients of {plain}: no layer records for them. Treated are Linear, Conv2d of "
                "one group and Embedding whose weight is their own and whose forward is called.",
                UserWarning,
                stacklevel=_USERS_CALL,
            )

    def _move(self, parameter: nn.Parameter, group: dict[str, Any], damping: float) -> None:
        state = self.state[parameter]
        update = parameter.grad
        assert update is not None
        if update.dtype != torch.float64:
            update = update.float()
        if self._scaler is None and self._loss_scale != 1.0:
            update = update / self._loss_scale
        if "a_inverse" in state:
            update = precondition(update, state["a_inverse"], state["g_inverse"])
        elif parameter in self._norms:
            update = update / (update.square() / (group["batch"] or 1.0) + damping**0.5)
        if group["weight_decay"] and self._decays[parameter]:
            update = update + group["weight_decay"] * parameter
        if group["clip"]:
            update = update / update.norm().clamp(min=1.0)
        buffer = state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = torch.zeros_like(parameter, dtype=update.dtype)
        buffer.mul_(group["momentum"]).add_(update)
        ahead = update + group["momentum"] * buffer if group["nesterov"] else buffer
        parameter.sub_((group["lr"] * ahead).to(parameter.dtype))

    def _recorded(self, layer: nn.Module) -> Observation | None:
        """Returns what a layer has recorded in this step, with G of each sample's own loss."""
        seen = recorded(self.state.get(weight_of(layer), {}))
        return None if seen is None else seen.of_each_sample(self._batch_size or seen.samples)

    def _new_samples(self, layer: nn.Module, samples: float) -> float:
        """Returns how many samples are new: a layer called again in one backward pass sees the same, later others."""
        present = torch._C._current_graph_task_id()
        number, most = self._last_pass.get(layer, (-1, 0.0))
        known = most if number == present else 0.0
        self._last_pass[layer] = (present, max(samples, known))
        return max(samples - known, 0.0)

    def _forget(self) -> None:
        self._last_pass.clear()
        for state in self.state.values():
            forget_recorded(state)
