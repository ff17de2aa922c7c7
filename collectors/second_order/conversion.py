"""The names of MindSpore's second-order training: thor, ConvertNetUtils, ConvertModelUtils, ModelThor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..model.forward import LossFunction
from ..model.model import Model
from ..networks.torch_network import unwrap
from ..validation import check_instance, wrong_type
from .optimizer import Thor
from .recorders import attach

thor = Thor
"""THOR for a network, under MindSpore's name and with the arguments of its ``nn.thor``: see ``Thor``.

The network's layers, parameters and state dict stay as they are: hooks record what is needed.
"""


class ConvertNetUtils:
    """Prepares networks for THOR."""

    def convert_to_thor_net(self, net: nn.Module) -> None:
        """Attaches the hooks that record what THOR needs; ``thor`` calls it, and a second call changes nothing.

        Raises:
            TypeError: it is not a PyTorch network.
        """
        attach(net)


class ModelThor(Model):
    """A Model that trains with THOR. Every hook fires at every step, and ``fit`` evaluates as ``Model.fit`` does.

    It takes the arguments of ``Model``; the optimizer is a ``Thor`` of this network.

    Raises:
        TypeError: the optimizer is not a ``Thor``.
        ValueError: it is another network's.
    """

    def __init__(
        self,
        network: nn.Module,
        loss_fn: LossFunction | None = None,
        optimizer: Thor | None = None,
        metrics: Mapping[str, Any] | Iterable[Any] | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(optimizer, Thor):
            raise wrong_type("optimizer", "a Thor, as thor(network, ...) returns it", optimizer)
        super().__init__(network, loss_fn, optimizer, metrics, **settings)
        trainable = {parameter for parameter in unwrap(network).parameters() if parameter.requires_grad}
        if trainable != {parameter for group in optimizer.param_groups for parameter in group["params"]}:
            raise ValueError(
                "optimizer must be of the network that is trained, but its parameters are others. Make it with "
                "thor(network, ...) after layers are frozen or unfrozen."
            )


class ConvertModelUtils:
    """Turns a Model into one that trains with THOR."""

    @staticmethod
    def convert_to_thor_model(
        model: Model,
        network: nn.Module,
        loss_fn: LossFunction | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        metrics: Mapping[str, Any] | Iterable[Any] | None = None,
        amp_level: str = "O0",
        loss_scale_manager: Any = None,
        keep_batchnorm_fp32: bool | None = False,
    ) -> Model:
        """Returns a ``ModelThor`` where the optimizer is a ``Thor``, and otherwise the model as it is.

        Of the model, the number of batches per optimizer step and the clipping of gradients are kept; the other
        arguments are those of ``Model``.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value, or the optimizer is another network's.
        """
        check_instance("model", model, Model, "a Model")
        if not isinstance(optimizer, Thor):
            return model
        return ModelThor(
            network,
            loss_fn,
            optimizer,
            metrics,
            amp_level=amp_level,
            loss_scale_manager=loss_scale_manager,
            keep_batchnorm_fp32=keep_batchnorm_fp32,
            gradient_accumulation_steps=model._accumulation_steps,
            clip_gradients=model._clip_gradients,
        )
