"""A ready callback_fn for Lightning: a LightningModule with its own loss, and a LightningDataModule's samples."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from collectors.networks.batches import map_leaves

from .errors import CallbackFunctionError
from .torch.losses import OwnLoss
from .users_code import warn_user

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
            module's own data loaders. Where no Trainer has set it or the module up, ``prepare_data()``,
            ``setup("fit")`` and the module's ``configure_model()`` are called. Every worker gets it by pickling, so
            pass a function if it holds much data.
        stage: "validation" or "training" for the step that gives the loss; None takes ``validation_step`` where that
            returns a loss, else ``training_step``.
        data: "validation" or "training" for the data loader that is read. A tuple of both measures both in one pass;
            values of the second one end with its name ("loss@validation"). Several data loaders of validation are
            data sets, "validation_0" and so on or as a dictionary names them, the first of them the main one.
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
    module_is_set_up: bool = False

    def __call__(self) -> tuple[OwnLoss, nn.Module, Any, dict[str, Any]]:
        module = self.module if isinstance(self.module, nn.Module) else self.module()
        if not _is_lightning(module, "LightningModule"):
            raise CallbackFunctionError(f"lightning_module must return a LightningModule, not {type(module).__name__}.")
        has_trained = self._has_trained(module)
        if module is self.module or has_trained:  # a function may return one that the user goes on with, too
            module = copy.deepcopy(module)
        module.log = module.log_dict = lambda *_, **__: None  # without a Trainer they would raise
        if not has_trained:
            _set_up(module)
        loaders, hooks = self._read_data(module)
        metrics, is_numbered = self.metrics, any(len(several) > 1 for several in loaders.values())
        if is_numbered:
            metrics = {name: functools.partial(_of_numbered, metric) for name, metric in metrics.items()}
        sets = {
            name: _numbered(loader, number) if is_numbered else loader
            for several in loaders.values()
            for number, (name, loader) in enumerate(several.items())
        }
        data = sets if len(sets) > 1 or not isinstance(self.data, str) else sets[self.data]
        return OwnLoss(_Step(module, hooks, self.stage, is_numbered=is_numbered)), module, data, metrics

    def __getstate__(self) -> dict[str, Any]:
        # A Trainer holds loggers, processes and our own collector, none of which can be sent.
        set_up = {"is_set_up": self._has_been_set_up(), "module_is_set_up": self._has_trained(self.module)}
        return {**vars(self), "datamodule": _without_trainer(self.datamodule), **set_up}

    def _has_trained(self, module: Any) -> bool:
        return self.module_is_set_up or getattr(module, "_trainer", None) is not None

    def _has_been_set_up(self) -> bool:
        return self.is_set_up or getattr(self.datamodule, "trainer", None) is not None

    def _read_data(self, module: Any) -> tuple[dict[str, dict[str, Any]], Any]:
        """Returns data loaders by their names, for each kind of ``data``, and what holds the hooks for batches."""
        source = self.datamodule
        if source is None:
            holder = module
        elif _is_data(source):
            holder = _without_trainer(source)
        elif not _is_data(holder := source()):
            raise CallbackFunctionError(
                f"datamodule must return a LightningDataModule or a DataLoader, not {type(holder).__name__}."
            )
        names = (self.data,) if isinstance(self.data, str) else self.data
        if isinstance(holder, DataLoader):
            return {names[0]: {names[0]: holder}}, module
        for data in names:
            if not _overrides(holder, _LOADERS[data]):
                raise _no_samples(holder, data, f"has no {_LOADERS[data]}")
        if holder is not module and not self._has_been_set_up():
            holder.prepare_data()
            holder.setup("fit")
        hooks = holder if any(_overrides(holder, hook) for hook in _BATCH_HOOKS) else module
        loaders = {data: _loaders(holder, data) for data in names}
        if "training" in loaders and "training" in loaders.get("validation", ()):
            raise CallbackFunctionError(
                f"{type(holder).__name__}.val_dataloader() calls one of its data loaders 'training', the name of that "
                "of train_dataloader(), and both are measured; give that data loader of validation another name."
            )
        return loaders, hooks


_LOADERS = {"validation": "val_dataloader", "training": "train_dataloader"}
_BATCH_HOOKS = ("on_before_batch_transfer", "on_after_batch_transfer")


def _set_up(module: Any) -> None:
    """Calls the hooks in which a module gets ready for a training, as a Trainer does."""
    for name, arguments in (("prepare_data", ()), ("setup", ("fit",)), ("configure_model", ())):
        try:
            getattr(module, name)(*arguments)
        except RuntimeError as error:
            if "not attached to a `Trainer`" not in str(error):
                raise
            warn_user(
                f"{type(module).__name__}.{name} asked for a Trainer, which there is none of where a landscape is "
                "measured, and ended there; what it does for the network must come before."
            )


def _no_samples(holder: Any, data: str, what: str) -> CallbackFunctionError:
    return CallbackFunctionError(
        f"{type(holder).__name__} {what}, so there are no {data} samples; write one, give a DataLoader as datamodule, "
        f"or take other samples with data={_other(data)!r}."
    )


def _loaders(holder: Any, data: str) -> dict[str, Any]:
    """Returns one kind's data loaders by name."""
    found = getattr(holder, _LOADERS[data])()
    if isinstance(found, list | tuple):
        found = {f"{data}_{number}": loader for number, loader in enumerate(found)}
    several = dict(found) if isinstance(found, Mapping) else {data: found}
    if not several:
        raise _no_samples(holder, data, f"returns none from {_LOADERS[data]}")
    if type(found).__name__ == "CombinedLoader" or (len(several) > 1 and data == "training"):
        raise CallbackFunctionError(
            f"{type(holder).__name__}.{_LOADERS[data]}() must return one data loader, because Lightning puts the "
            f"batches of several into one; give the one to measure on as datamodule."
        )
    return several if len(several) > 1 else {data: next(iter(several.values()))}


def _numbered(loader: Any, number: int) -> Any:
    """Returns a data loader whose batches say which it is, as Lightning tells steps and hooks."""
    result, collate = copy.copy(loader), loader.collate_fn
    result.collate_fn = lambda items: {"batch": collate(items), "dataloader_idx": number}
    return result


def _of_numbered(metric: Callable[[Any, Any], Any], outputs: Any, numbered: Mapping[str, Any]) -> Any:
    return metric(outputs, numbered["batch"])


class _Step:
    def __init__(self, module: Any, hooks: Any, stage: str | None, *, is_numbered: bool) -> None:
        self._stage, self._is_numbered = stage, is_numbered
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
        batch, number = (batch["batch"], batch["dataloader_idx"]) if self._is_numbered else (batch, 0)
        if module.dtype != torch.float32:
            # A Trainer's precision="bf16-true" leaves the weights like that, and converts each batch.
            batch = map_leaves(lambda leaf: leaf.to(module.dtype) if _is_real(leaf) else leaf, batch)
        for hook in self._hooks:
            batch = hook(batch, number)
        for stage in STAGES if self._stage is None else (self._stage,):
            outputs = self._run(module, stage, batch, number)
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._stage = stage  # what the first batch shows holds for all
                return loss, outputs
        raise CallbackFunctionError(
            f"{type(module).__name__}.{stage}_step must return the loss, or a dictionary with 'loss', but returned "
            f"{_shown(outputs)}; return the loss there, or choose the other step with stage={_other(stage)!r}."
        )

    def _run(self, module: Any, stage: str, batch: Any, number: int) -> Any:
        step = getattr(module, f"{stage}_step")
        names = inspect.signature(step).parameters
        if stage == "training" and not module.automatic_optimization:
            raise CallbackFunctionError(
                f"{type(module).__name__} optimizes manually, so its training_step moves the weights and cannot be "
                "measured; return the loss from validation_step."
            )
        numbers = {name: value for name, value in (("batch_idx", 0), ("dataloader_idx", number)) if name in names}
        try:
            # A second argument may have any name.
            return step(batch, **numbers) if len(names) < 2 or "batch_idx" in names else step(batch, 0)
        finally:
            for metric in self._metrics:
                metric.reset()


def _is_real(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


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
