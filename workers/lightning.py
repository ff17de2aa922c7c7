"""A ready callback_fn for Lightning: a LightningModule with its own loss, and a LightningDataModule's samples."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from .errors import CallbackFunctionError
from .torch.own_loss import OwnLoss

STAGES = ("validation", "training")


def evaluator_from(
    lightning_module: Any,
    datamodule: Any = None,
    *,
    stage: str | None = None,
    data: str | tuple[str, ...] = "validation",
    metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
) -> LightningCallback:
    """Returns a callback_fn that measures a LightningModule by its own loss.

    Example::

        callback_fn = evaluator_from(LitModel, DataModule)
        SummaryLandscape("run").gen_landscapes_with_multi_process(callback_fn, device_ids=[0, 1])

    The loss is what ``validation_step`` or ``training_step`` returns: a number, or a dictionary with "loss". It runs
    in eval mode, without gradients and without a Trainer; ``log`` and ``log_dict`` do nothing there, and metrics that
    the module holds are reset after each batch. A module that is given as an object is copied and stays as it is.

    Args:
        lightning_module: a LightningModule, or its class or any function without arguments that returns one.
        datamodule: a LightningDataModule or a DataLoader, or a class or function that returns one; None takes the
            module's own data loaders. Where no Trainer has set it up, ``prepare_data()`` and ``setup("fit")`` are
            called. Every worker gets it by pickling, so pass a function if it holds much data.
        stage: "validation" or "training" for the step that gives the loss; None takes ``validation_step`` where that
            returns a loss, else ``training_step``.
        data: "validation" or "training" for the data loader that is read. A tuple of both measures both in one pass;
            values of the second one end with its name ("loss@validation").
        metrics: name to function of (what the step returned, batch).

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
    """
    if not _is_lightning(lightning_module, "LightningModule") and not _is_factory(lightning_module):
        raise TypeError(
            "lightning_module must be a LightningModule, or its class or a function that returns one, but got "
            f"{type(lightning_module).__name__}."
        )
    if datamodule is not None and not _is_data(datamodule) and not _is_factory(datamodule):
        raise TypeError(
            "datamodule must be a LightningDataModule or a DataLoader, or a class or function that returns one, or "
            f"None, but got {type(datamodule).__name__}."
        )
    chosen = tuple(data) if isinstance(data, tuple | list) else (data,)
    for name, value, allowed in (("stage", stage, (*STAGES, None)), *(("data", item, STAGES) for item in chosen)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, but got {value!r}.")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"data must name each data loader once, but got {data!r}.")
    if len(chosen) > 1 and isinstance(datamodule, DataLoader):
        raise ValueError("data must be one name where datamodule is a DataLoader; several come from a datamodule.")
    named = chosen if isinstance(data, tuple | list) else data
    return LightningCallback(lightning_module, datamodule, stage, named, dict(metrics or {}))


@dataclass(eq=False)
class LightningCallback:
    """The callback_fn that ``evaluator_from`` returns; it can be sent to other processes."""

    module: Any
    datamodule: Any
    stage: str | None
    data: str | tuple[str, ...]
    metrics: dict[str, Any]
    is_set_up: bool = False

    def __call__(self) -> tuple[OwnLoss, nn.Module, Any, dict[str, Any]]:
        source = self.module
        module = copy.deepcopy(source) if isinstance(source, nn.Module) else source()
        if not _is_lightning(module, "LightningModule"):
            raise CallbackFunctionError(f"lightning_module must return a LightningModule, not {type(module).__name__}.")
        module.log = module.log_dict = lambda *_, **__: None  # without a Trainer they would raise
        loader, hooks = self._read_data(module)
        return OwnLoss(_Step(module, hooks, self.stage)), module, loader, self.metrics

    def __getstate__(self) -> dict[str, Any]:
        # A Trainer holds loggers, processes and our own collector, none of which can be sent.
        return {**vars(self), "datamodule": _without_trainer(self.datamodule), "is_set_up": self._has_been_set_up()}

    def _has_been_set_up(self) -> bool:
        return self.is_set_up or getattr(self.datamodule, "trainer", None) is not None

    def _read_data(self, module: Any) -> tuple[Any, Any]:
        """Returns the data loader, or several by name, and what holds the hooks for their batches."""
        source = self.datamodule
        if source is None:
            holder = module
        elif _is_data(source):
            holder = _without_trainer(source)
        elif not _is_data(holder := source()):
            raise CallbackFunctionError(
                f"datamodule must return a LightningDataModule or a DataLoader, not {type(holder).__name__}."
            )
        if isinstance(holder, DataLoader):
            return holder, module
        names = (self.data,) if isinstance(self.data, str) else self.data
        for data in names:
            if not _overrides(holder, _LOADERS[data]):
                raise CallbackFunctionError(
                    f"{type(holder).__name__} has no {_LOADERS[data]}, so there are no {data} samples; write one, give "
                    f"a DataLoader as datamodule, or take other samples with data={_other(data)!r}."
                )
        if holder is not module and not self._has_been_set_up():
            holder.prepare_data()
            holder.setup("fit")
        hooks = holder if any(_overrides(holder, hook) for hook in _BATCH_HOOKS) else module
        loaders = {data: _one_loader(holder, _LOADERS[data]) for data in names}
        return loaders[self.data] if isinstance(self.data, str) else loaders, hooks


_LOADERS = {"validation": "val_dataloader", "training": "train_dataloader"}
_BATCH_HOOKS = ("on_before_batch_transfer", "on_after_batch_transfer")


def _one_loader(holder: Any, name: str) -> Any:
    loader = getattr(holder, name)()
    if isinstance(loader, list | tuple) and len(loader) == 1:
        loader = loader[0]
    if isinstance(loader, list | tuple | Mapping) or type(loader).__name__ == "CombinedLoader":
        raise CallbackFunctionError(
            f"{type(holder).__name__}.{name}() must return one data loader, but returned several "
            f"({type(loader).__name__}); give the one to measure on as datamodule."
        )
    return loader


class _Step:
    def __init__(self, module: Any, hooks: Any, stage: str | None) -> None:
        self._stage = stage
        self._hooks = [getattr(hooks, name) for name in _BATCH_HOOKS if _overrides(hooks, name)]
        metric = getattr(sys.modules.get("torchmetrics"), "Metric", ())
        self._metrics = [layer for layer in module.modules() if isinstance(layer, metric)]
        needed, validates = stage or "training", _overrides(module, "validation_step")
        if not _overrides(module, f"{needed}_step") and not (needed == "training" and validates):
            raise CallbackFunctionError(
                f"{type(module).__name__} has no {needed}_step, so it has no loss to measure; write one, or choose the "
                f"other step with stage={_other(needed)!r}."
            )
        if stage is None and not validates:
            self._stage = "training"

    def __call__(self, module: Any, batch: Any) -> tuple[Any, Any]:
        for hook in self._hooks:
            batch = hook(batch, 0)
        for stage in STAGES if self._stage is None else (self._stage,):
            outputs = self._run(module, stage, batch)
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._stage = stage  # what the first batch shows holds for all
                return loss, outputs
        raise CallbackFunctionError(
            f"{type(module).__name__}.{stage}_step must return the loss, or a dictionary with 'loss', but returned "
            f"{_shown(outputs)}; return the loss there, or choose the other step with stage={_other(stage)!r}."
        )

    def _run(self, module: Any, stage: str, batch: Any) -> Any:
        step = getattr(module, f"{stage}_step")
        names = inspect.signature(step).parameters
        if stage == "training" and not module.automatic_optimization:
            raise CallbackFunctionError(
                f"{type(module).__name__} optimizes manually, so its training_step moves the weights and cannot be "
                "measured; return the loss from validation_step."
            )
        numbers = {name: 0 for name in ("batch_idx", "dataloader_idx") if name in names}
        try:
            # A second argument may have any name.
            return step(batch, **numbers) if len(names) < 2 or "batch_idx" in names else step(batch, 0)
        finally:
            for metric in self._metrics:
                metric.reset()


def _shown(outputs: Any) -> str:
    if isinstance(outputs, torch.Tensor):
        return f"a tensor of shape {tuple(outputs.shape)}"
    if isinstance(outputs, Mapping):
        return f"a dictionary of {sorted(map(str, outputs))}"
    return f"a {type(outputs).__name__}"


def _other(stage: str) -> str:
    return "training" if stage == "validation" else "validation"


def _is_factory(value: object) -> bool:
    # A network can be called as well, but it is a network.
    return callable(value) and not isinstance(value, nn.Module | Mapping)


def _is_lightning(value: object, name: str) -> bool:
    packages = filter(None, map(sys.modules.get, ("lightning.pytorch", "pytorch_lightning")))
    return any(isinstance(value, getattr(package, name)) for package in packages)


def _is_data(value: object) -> bool:
    return isinstance(value, DataLoader) or _is_lightning(value, "LightningDataModule")


def _overrides(holder: Any, name: str) -> bool:
    """Returns whether the method is the user's rather than Lightning's empty one."""
    if name in vars(holder):
        return True  # LightningDataModule.from_datasets
    for kind in type(holder).__mro__:
        if name in vars(kind):
            home = getattr(vars(kind)[name], "__module__", None) or kind.__module__
            return not home.startswith(("lightning.pytorch.core", "pytorch_lightning.core"))
    return False


def _without_trainer(datamodule: Any) -> Any:
    if getattr(datamodule, "trainer", None) is None:
        return datamodule
    result = copy.copy(datamodule)
    result.trainer = None
    return result
