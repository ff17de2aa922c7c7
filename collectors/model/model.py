"""Model: the smallest PyTorch training loop that fires every hook of the callbacks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..callbacks.callback import Callback, CallbackParameters, RunContext, training_parameters
from ..callbacks.callback_manager import CallbackManager
from ..model_checkpoint.checkpoint_file import Checkpoint
from ..model_checkpoint.resuming import Resumption, TrainingContext
from ..named_metrics import Loss
from ..networks.batches import length_of
from ..networks.torch_network import unwrap
from ..validation import check_bool, check_choice, check_instance, check_int, wrong_type, wrong_value
from .forward import Forward, LossFunction, check_dataset, to_device
from .loop import FitEvaluation, evaluate, run, train_epochs
from .loss_scale import LossScale
from .metrics import named_metrics
from .update import ClipGradients, OptimizerUpdate, calls_for_closure

Callbacks = Callback | Sequence[Callback] | None
ResumeFrom = Checkpoint | str | os.PathLike[str] | None


class Model:
    """A network with what it takes to train and evaluate it.

    A data set is a DataLoader or any re-iterable of ``(inputs, targets)`` batches; inputs may be a tensor, a
    tuple (the network's arguments) or a dict (its named arguments).

    Args:
        network: the network; it may be wrapped (DataParallel, compiled).
        loss_fn: called with outputs and targets, returns a scalar; None where the network returns its loss, alone or
            as the first of several things, a scalar or one for each sample, of which the mean counts.
        optimizer: needed by ``train`` and ``fit`` only.
        metrics: a dict of names to torchmetrics objects or functions of outputs and targets that return one
            number (averaged over samples), or a set or list of torchmetrics objects. Instead of an object, the name
            of a metric: ``metrics={"acc", "recall", "loss"}``, through torchmetrics. "acc" (or "accuracy",
            "top_1_accuracy"), "top_5_accuracy", "precision", "recall", "f1" (or "F1": these three are means over the
            classes) and "confusion_matrix" need outputs of shape (N, classes, ...) and class numbers as targets;
            "mae" and "mse" compare values; "loss" is the mean loss.
        amp_level: mixed precision: "O0" (none), "O2" (float16 with scaled gradients on CUDA, bfloat16
            elsewhere; BatchNorm in float32), "O3" (the same without a scale of its own, and with BatchNorm in reduced
            precision) or "auto" (O2 on CUDA, else O0). Weights stay in float32.
        gradient_accumulation_steps: how many batches make one optimizer step; the last group of an epoch may
            be smaller. Hooks count batches.
        device: where to move the network, the loss function and the batches; None leaves the network where it
            is and brings the batches there.
        clip_gradients: called with the list of parameters before each optimizer step, for instance
            ``lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 1.0)``.
        loss_scale_manager: what multiplies the loss, in every precision: a ``FixedLossScaleManager``, a
            ``DynamicLossScaleManager`` or a ``torch.amp.GradScaler``. The gradients are divided by it again before they
            are clipped and used. None scales only where ``amp_level`` needs it.
        keep_batchnorm_fp32: whether BatchNorm computes in float32 in mixed precision; None as ``amp_level`` says.

    Attributes:
        network: as given.
        loss_fn: as given.
        optimizer: as given.
        metrics: the metrics by name.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        ImportError: a metric is given by name, and torchmetrics is not installed.
    """

    def __init__(
        self,
        network: nn.Module,
        loss_fn: LossFunction | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        metrics: Mapping[str, Any] | Iterable[Any] | None = None,
        *,
        amp_level: str = "O0",
        gradient_accumulation_steps: int = 1,
        device: str | torch.device | None = None,
        clip_gradients: ClipGradients | None = None,
        loss_scale_manager: LossScale | None = None,
        keep_batchnorm_fp32: bool | None = None,
    ) -> None:
        self.network = check_instance("network", network, nn.Module, "a torch.nn.Module")
        for name, function in (("loss_fn", loss_fn), ("clip_gradients", clip_gradients)):
            if function is not None and (not callable(function) or isinstance(function, type)):
                raise wrong_type(name, "a function (an object, not its class) or None", function)
        self.loss_fn = loss_fn
        expected = "a torch.optim.Optimizer or None"
        self.optimizer = check_instance("optimizer", optimizer, torch.optim.Optimizer | None, expected)
        self.metrics = named_metrics(metrics)
        self._amp_level = check_choice("amp_level", amp_level, ("O0", "O2", "O3", "auto"))
        expected = "a FixedLossScaleManager, a DynamicLossScaleManager, a torch.amp.GradScaler or None"
        self._loss_scale = check_instance("loss_scale_manager", loss_scale_manager, LossScale | None, expected)
        if keep_batchnorm_fp32 is not None:
            check_bool("keep_batchnorm_fp32", keep_batchnorm_fp32)
        self._keep_batchnorm_fp32 = keep_batchnorm_fp32
        self._accumulation_steps = check_int("gradient_accumulation_steps", gradient_accumulation_steps, minimum=1)
        self._clip_gradients = clip_gradients
        self._scaler: torch.amp.GradScaler | None = None
        if device is not None:
            expected = "a device name (such as 'cuda:0'), a torch.device or None"
            check_instance("device", device, str | torch.device, expected)
            try:
                device = torch.device(device)
            except RuntimeError as error:
                raise wrong_value("device", "a device that PyTorch knows, such as 'cpu' or 'cuda:0'", device) from error
            network.to(device)
            if isinstance(loss_fn, nn.Module):
                loss_fn.to(device)

    def train(
        self,
        epoch: int,
        train_dataset: Iterable[Any],
        callbacks: Callbacks = None,
        dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
        *,
        progress: bool = False,
        resume_from: ResumeFrom = None,
    ) -> None:
        """Trains up to epoch number ``epoch``.

        A stop that a callback asks for takes effect after the present step (or, asked for before the first
        step, after that); the epoch's end hooks and the end hook still run. When something raises, ``on_exception``
        runs, the callbacks are left, and the error propagates.

        Args:
            epoch: the total number of epochs, those before ``initial_epoch`` included.
            train_dataset: the batches of one epoch.
            callbacks: a callback, a list or tuple of them, or a ``CallbackManager``.
            dataset_sink_mode: accepted for compatibility with MindSpore; PyTorch has no sink, so every step is a step.
            sink_size: accepted for compatibility, too; -1 or positive.
            initial_epoch: epochs already done, after a resume; the step counter continues from there.
            progress: whether to show a progress bar.
            resume_from: a checkpoint of ``ModelCheckpoint`` (its path, or what ``load_checkpoint`` returned) to go
                on from. Network, optimizer, gradient scaler, loss function, callbacks and random generators are
                set to what they were, and the batches of a begun epoch that were done are skipped (drawn again
                and dropped): on the same machine the run ends as if it had never stopped, bit for bit, where its
                computations repeat bit for bit. Build model, data set and callbacks as they were built then.

        Raises:
            TypeError: an argument has the wrong type, or a batch is not a pair.
            ValueError: an argument has a wrong value, the optimizer is missing, the data set is empty, or the
                loss is not a scalar.
            CheckpointError: ``resume_from`` cannot be read, holds no training state, or is another model's.
        """
        _check_sink(sink_size, dataset_sink_mode=dataset_sink_mode)
        manager = _manager(callbacks)
        self._train(epoch, train_dataset, initial_epoch, manager, None, progress, resume_from)

    def fit(
        self,
        epoch: int,
        train_dataset: Iterable[Any],
        valid_dataset: Iterable[Any] | None = None,
        valid_frequency: int | Sequence[int] = 1,
        callbacks: Callbacks = None,
        dataset_sink_mode: bool = False,
        valid_dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
        *,
        progress: bool = False,
        resume_from: ResumeFrom = None,
    ) -> None:
        """Trains as ``train`` does and evaluates in between, before the epoch's end hook.

        From there until that hook is done, ``cb_params.metrics`` holds the metrics, and
        ``cb_params.eval_results`` the metrics and "eval_loss": the mean of the batch losses weighted by their
        numbers of samples. Training and evaluations share one run context: a stop asked for in an evaluation
        stops training as well.

        It takes the arguments of ``train``, and between them ``valid_dataset``, the batches of an evaluation (None
        makes none), and ``valid_frequency``: evaluate after every so many epochs, or after the epochs with these
        numbers (the first is 1). ``valid_dataset_sink_mode`` is accepted as ``dataset_sink_mode`` is.

        Raises:
            TypeError: as ``train``; ``valid_frequency`` is neither int nor list.
            ValueError: as ``train``; there is a ``valid_dataset`` and no metrics; a strict manager's callback
                has legacy hooks.
            CheckpointError: as ``train``.
        """
        _check_sink(sink_size, dataset_sink_mode=dataset_sink_mode, valid_dataset_sink_mode=valid_dataset_sink_mode)
        due = _checked_frequency(valid_frequency)
        manager = _manager(callbacks)
        evaluation = None
        if valid_dataset is not None:
            self._check_metrics()
            check_dataset("valid_dataset", valid_dataset)
            evaluation = FitEvaluation(valid_dataset, self.metrics, due)
        manager.check_legacy_hooks()
        self._train(epoch, train_dataset, initial_epoch, manager, evaluation, progress, resume_from)

    def eval(
        self, valid_dataset: Iterable[Any], callbacks: Callbacks = None, dataset_sink_mode: bool = False
    ) -> dict[str, Any]:
        """Returns the metrics over a data set, by name.

        Meanwhile the network is in eval mode; afterwards each of its modules is back in its former mode.

        Raises:
            TypeError: an argument has the wrong type, a batch is not a pair, or a metric returns no number.
            ValueError: the Model has no metrics, or the data set is empty.
        """
        _check_sink(dataset_sink_mode=dataset_sink_mode)
        manager = _manager(callbacks)
        self._check_metrics()
        check_dataset("valid_dataset", valid_dataset)
        params = CallbackParameters(mode="eval", network=unwrap(self.network))
        run_context = RunContext(params)
        with run(manager, run_context):
            return evaluate(self._forward(), valid_dataset, self.metrics, manager, run_context)

    def predict(self, *inputs: Any) -> Any:
        """Returns the outputs for one batch of inputs, or for several arguments, in eval mode and without gradients."""
        forward = self._forward()
        with forward.eval_mode(), torch.no_grad():
            return forward.outputs(to_device(inputs[0] if len(inputs) == 1 else inputs, forward.device))

    def _train(
        self,
        epoch: int,
        train_dataset: Iterable[Any],
        initial_epoch: int,
        manager: CallbackManager,
        evaluation: FitEvaluation | None,
        progress: bool,
        resume_from: ResumeFrom,
    ) -> None:
        epoch = check_int("epoch", epoch, minimum=1)
        initial_epoch = check_int("initial_epoch", initial_epoch, minimum=0)
        if initial_epoch >= epoch:
            raise wrong_value("initial_epoch", f"less than epoch ({epoch}), the total number of epochs", initial_epoch)
        check_bool("progress", progress)
        forward = self._forward()
        update = self._optimizer_update(forward)
        check_dataset("train_dataset", train_dataset)
        batch_num = length_of(train_dataset)
        initial_step = initial_epoch * (batch_num or 0)
        resumption = None
        if resume_from is not None:
            if initial_epoch:
                raise wrong_value("initial_epoch", "0 when there is a resume_from, which knows it", initial_epoch)
            resumption = Resumption.from_checkpoint(resume_from)
            resumption.check(epoch, batch_num)
            initial_epoch, initial_step = resumption.state.epochs_done, resumption.state.step
            batch_num = resumption.state.batch_num if batch_num is None else batch_num
        elif batch_num is None and initial_epoch:
            raise ValueError(
                "train_dataset must have a length when initial_epoch is not 0, because the step counter continues from "
                "initial_epoch * len(train_dataset). Give it a __len__."
            )
        scaler = self._scaler if self._loss_scale is not None or forward.scales_loss else None
        params = training_parameters(
            initial_step,
            scaler,
            network=unwrap(self.network),
            train_network=self.network,
            loss_fn=self.loss_fn,
            optimizer=self.optimizer,
            train_dataset=train_dataset,
            epoch_num=epoch,
            cur_epoch_num=initial_epoch,
            batch_num=batch_num,
        )
        run_context = TrainingContext(params, update, resumption)
        # A second copy of the weights, which the context lets go of when they are loaded.
        del resumption
        with run(manager, run_context):
            train_epochs(forward, update, evaluation, manager, run_context, progress)

    def _forward(self) -> Forward:
        return Forward(self.network, self.loss_fn, self._amp_level, self._keep_batchnorm_fp32)

    def _optimizer_update(self, forward: Forward) -> OptimizerUpdate:
        if self.optimizer is None:
            raise ValueError(
                "optimizer must be given to train, but is None. Pass it to Model(network, loss_fn, optimizer)."
            )
        if calls_for_closure(self.optimizer):
            name = type(self.optimizer).__name__
            raise TypeError(
                f"optimizer must be one whose step needs no closure, but got {name}. Train with {name} in a loop of "
                "your own, which SummaryCollector.watch can collect."
            )
        if self._scaler is None or (self._loss_scale is None and self._scaler.is_enabled() != forward.scales_loss):
            if isinstance(self._loss_scale, torch.amp.GradScaler):
                self._scaler = self._loss_scale
            elif self._loss_scale is None:
                self._scaler = torch.amp.GradScaler(forward.device.type, enabled=forward.scales_loss)
            else:
                self._scaler = self._loss_scale.scaler(forward.device.type)
        # An error in the middle of a step leaves it thinking that the gradients of the next one are unscaled.
        getattr(self._scaler, "_per_optimizer_states", {}).clear()
        return OptimizerUpdate(
            self.optimizer, self._scaler, self._accumulation_steps, self._clip_gradients, forward.loss_is_sum
        )

    def _check_metrics(self) -> None:
        if not self.metrics:
            raise ValueError(
                "metrics must be given to evaluate on valid_dataset, but there are none. Pass "
                "Model(..., metrics={'name': metric})."
            )
        if self.loss_fn is None and any(isinstance(metric, Loss) for metric in self.metrics.values()):
            raise ValueError(
                "metrics has the loss, but loss_fn is None, and a network's own loss is not known in an evaluation. "
                "Leave it out, or pass Model(network, loss_fn, ...)."
            )


def _manager(callbacks: Callbacks) -> CallbackManager:
    return callbacks if isinstance(callbacks, CallbackManager) else CallbackManager(callbacks)


def _check_sink(sink_size: int = -1, **modes: bool) -> None:
    if check_int("sink_size", sink_size) != -1 and sink_size < 1:
        raise wrong_value("sink_size", "-1 or an int of at least 1", sink_size)
    for name, mode in modes.items():
        if check_bool(name, mode):
            warnings.warn(
                f"{name}=True has no effect: PyTorch has no data sink, so every batch is a step of its own and "
                "sink_size is ignored. Leave it False.",
                UserWarning,
                stacklevel=3,
            )


def _checked_frequency(valid_frequency: int | Sequence[int]) -> Callable[[int], bool]:
    if isinstance(valid_frequency, list | tuple | range):
        epochs = [
            check_int(f"valid_frequency[{index}]", epoch, minimum=1) for index, epoch in enumerate(valid_frequency)
        ]
        return epochs.__contains__
    if isinstance(valid_frequency, bool) or not isinstance(valid_frequency, int | np.integer):
        raise wrong_type("valid_frequency", "an int or a list of epoch numbers", valid_frequency)
    every = check_int("valid_frequency", valid_frequency, minimum=1)
    return lambda epoch: epoch % every == 0
