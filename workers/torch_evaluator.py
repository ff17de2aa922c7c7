"""PyTorch's evaluator: eval mode, forward only, on a fixed set of samples, the network moved in place."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from collectors.network_state import State
from collectors.torch_state import unwrap

from .errors import FrozenNetworkError, SamplesError
from .evaluator import Evaluator, EvaluatorDescription, MeasurementOptions
from .measurement_plan import MeasurementPlan
from .torch_loss import BatchLossTotal, LossTotal, find_loss, split_into_samples
from .torch_metrics import make_metrics
from .torch_moves import NetworkInPlace
from .torch_samples import Batch, Samples, call_network, cut, read_samples
from .torch_tuning import tune

_CLOSE = 1e-5
_CLOSE_LOW_PRECISION = 2e-2


class TorchEvaluator(Evaluator):
    """Measures a PyTorch network (contract 2).

    Args:
        model: a Model (its ``loss_fn`` counts) or a loss function of (outputs, targets).
        network: the network; it ends as it was found.
        dataset: a DataLoader, Dataset, pair of tensors, or iterable of (inputs, targets).
        metrics: name to torchmetrics object or function of (outputs, targets).
        options: what is measured.
        threads: CPU threads that may be used.
        device: "cpu", "cuda:0", ...
        plan: how to compute; None tunes one.
        restore_network: whether ``close`` puts the network back; a worker of its own saves that memory.

    Raises:
        FrozenNetworkError: no parameter is trainable.
        SamplesError: the samples cannot be measured.
        CallbackFunctionError: the loss or a metric returns no single number.
        TypeError: an argument has the wrong type.
    """

    def __init__(
        self,
        model: object,
        network: nn.Module,
        dataset: object,
        metrics: object,
        *,
        options: MeasurementOptions,
        threads: int = 1,
        device: str = "cpu",
        plan: MeasurementPlan | None = None,
        restore_network: bool = True,
    ) -> None:
        self._module = unwrap(network)
        self._device = torch.device(device)
        self._home = next((tensor.device for tensor in self._module.parameters()), self._device)
        samples, notes = read_samples(dataset, options)
        samples_hash = samples.sha256()
        loss = find_loss(model)
        self._user_threads = torch.get_num_threads()
        self._restore = restore_network
        if self._home != self._device:
            self._module.to(self._device)
        self._moves = NetworkInPlace(self._module, restore=restore_network)
        try:
            self._check_space()
            self._module.eval()
            self._options = options
            self._forward: Callable[..., Any] = self._module
            self._plan = MeasurementPlan(threads=threads)
            self._samples = samples.on(self._device)
            self._metrics = make_metrics(metrics, self._device)
            self._normalization = [layer for layer in self._module.modules() if _has_statistics(layer)]
            if options.buffers == "recalibrate" and not self._normalization:
                notes.append('buffers="recalibrate" changes nothing: the network has no normalization statistics.')
                warnings.warn(notes[-1], stacklevel=2)
            self._loss, dependent = self._choose_loss(loss, notes)
            self._plan = plan or tune(
                self._time_plan,
                threads,
                self._samples,
                fixed_batches=dependent or not self._samples.can_be_cut,
                has_images=_has_images(self._samples),
            )
            self._samples = self._samples.on(self._device, self._plan.channels_last)
            self._forward = self._compiled(notes) if self._plan.compile else self._module
            with self._settings():
                names = tuple(self._measure_current())
        except BaseException:
            self.close()
            raise
        self._description = EvaluatorDescription(
            space=self._moves.space,
            metrics=names,
            num_samples=samples.count,
            samples_sha256=samples_hash,
            options=options,
            partition_dependent=dependent,
            plan=self._plan,
            device=self._device.type,
            notes=tuple(notes),
        )

    @property
    def description(self) -> EvaluatorDescription:
        """What this evaluator measures, and how."""
        return self._description

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on the device."""
        with torch.no_grad():
            self._moves.load(origin, directions, buffers)

    def measure(self, points: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Measures points of the loaded plane, shape (points, axes)."""
        rows = []
        with self._settings():
            for coordinates in np.asarray(points, np.float64):
                self._moves.move(coordinates.tolist())
                self._treat_buffers()
                rows.append(self._measure_current())
        return {name: np.array([row[name] for row in rows]) for name in self.description.metrics}

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Measures one full set of weights, off the plane; the loaded plane stays in place."""
        with self._settings():
            try:
                self._moves.set_state(parameters, buffers)
                if buffers is None and self._options.buffers == "recalibrate":
                    self._recalibrate()
                return self._measure_current()
            finally:
                self._moves.return_to_origin()

    def close(self) -> None:
        """Leaves the user's network as it was found, bit for bit."""
        if self._restore:
            with torch.no_grad():
                self._moves.put_back()
            if self._home != self._device:
                self._module.to(self._home)
        torch.set_num_threads(self._user_threads)

    def _check_space(self) -> None:
        trainable = self._moves.space.trainable
        if not trainable:
            raise FrozenNetworkError(
                f"network {self._moves.space.network} has no trainable parameter, so there is no plane through its "
                "weights; set "
                "requires_grad=True on the parameters that training moves."
            )
        wrong = [info.name for info in trainable if info.dtype.startswith("complex")]
        if wrong:
            raise TypeError(f"network must have real parameters, but {wrong} are complex; view them as real numbers.")

    def _measure_current(self) -> dict[str, float]:
        return self._run(self._samples.batches(self._plan.batch_size))

    def _run(self, batches: Sequence[Batch], *, with_metrics: bool = True) -> dict[str, float]:
        metrics = self._metrics if with_metrics else {}
        self._loss.reset()
        for metric in metrics.values():
            metric.reset()
        for batch in batches:
            outputs = call_network(self._forward, batch.inputs)
            self._loss.add(outputs, batch)
            for metric in metrics.values():
                metric.add(outputs, batch)
        return {**self._loss.result(), **{name: metric.result() for name, metric in metrics.items()}}

    def _choose_loss(self, loss: Callable[..., Any], notes: list[str]) -> tuple[LossTotal, bool]:
        """Returns how the loss is added up, and whether the loader's own batches are part of its meaning."""
        own = self._samples.own_batches
        if isinstance(loss, nn.Module) and self._device.type != "cpu":
            loss = loss.to(self._device)
        whole = BatchLossTotal(loss)
        with self._settings():
            split = split_into_samples(loss, self._device)
            if split is not None and self._agrees(split, whole, own):
                self._loss = split
            else:
                self._loss = whole
            as_loaded = self._run(own)
            try:
                as_pieces = self._run([piece for batch in own for piece in _two_pieces(batch)])
                free = {name: self._is_close(value, as_pieces[name]) for name, value in as_loaded.items()}
            except SamplesError:
                raise
            except Exception:
                free = dict.fromkeys(as_loaded, False)
        free.pop("loss_stderr", None)
        bound = [name for name, is_free in free.items() if not is_free]
        for name in bound:
            notes.append(
                f"{name} depends on how samples are batched, so the data set's own batches are kept and "
                "it has no standard error." if name == "loss" else
                f"metric {name!r} depends on how samples are batched, so the data set's own batches are kept."
            )  # fmt: skip
            warnings.warn(notes[-1], stacklevel=2)
        if "loss" in bound:
            self._loss = whole
        return self._loss, bool(bound)

    def _agrees(self, split: LossTotal, whole: LossTotal, batches: Sequence[Batch]) -> bool:
        for batch in batches:
            outputs = call_network(self._forward, batch.inputs)
            values = []
            for total in (split, whole):
                total.reset()
                try:
                    total.add(outputs, batch)
                    values.append(total.result()["loss"])
                except SamplesError:
                    # A batch of padding only has no mean of its own, but it does no harm to the sums.
                    values.append(float("nan"))
                except Exception:
                    # The user's own loss may refuse a batch that the sums can take, never the other way round.
                    return total is whole
            if not self._is_close(*values):
                return False
        return True

    def _is_close(self, first: float, second: float) -> bool:
        low = any(info.dtype not in ("float32", "float64") for info in self._moves.space.trainable)
        return bool(np.isclose(first, second, rtol=_CLOSE_LOW_PRECISION if low else _CLOSE, atol=1e-7, equal_nan=True))

    def _treat_buffers(self) -> None:
        self._moves.reset_buffers()
        if self._options.buffers == "recalibrate":
            self._recalibrate()

    def _recalibrate(self) -> None:
        if not self._normalization:
            return
        momenta = [layer.momentum for layer in self._normalization]
        try:
            for layer in self._normalization:
                layer.reset_running_stats()
                layer.momentum = None  # a cumulative average over the batches
                layer.train()
            for batch in _without_single_samples(self._samples.batches(self._options.recalibration_batch_size)):
                call_network(self._module, batch.inputs)
        finally:
            for layer, momentum in zip(self._normalization, momenta, strict=True):
                layer.momentum = momentum
                layer.eval()

    def _time_plan(self, plan: MeasurementPlan, batches: Sequence[Batch]) -> None:
        self._plan = replace(plan, compile=False)
        with self._settings():
            self._run(batches, with_metrics=False)

    def _compiled(self, notes: list[str]) -> Callable[..., Any]:
        if self._device.type == "cpu" and not any(map(shutil.which, ("g++", "c++", "clang++"))):
            notes.append("compile=True was asked for, but there is no C++ compiler; the network runs eagerly.")
            warnings.warn(notes[-1], stacklevel=2)
            return self._module
        return torch.compile(self._module, dynamic=False)

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """Full float32 precision and the plan's threads, without touching what the user set."""
        precision = torch.get_float32_matmul_precision()
        threads = torch.get_num_threads()
        with contextlib.ExitStack() as stack:
            if self._device.type == "cuda":
                flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
                stack.enter_context(flags)
            stack.enter_context(torch.no_grad())
            if precision != "highest":
                torch.set_float32_matmul_precision("highest")
                stack.callback(torch.set_float32_matmul_precision, precision)
            if threads != self._plan.threads:
                torch.set_num_threads(self._plan.threads)
                stack.callback(torch.set_num_threads, threads)
            yield


def _has_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and layer.track_running_stats and layer.running_mean is not None


def _has_images(samples: Samples) -> bool:
    inputs = samples.own_batches[0].inputs
    return isinstance(inputs, torch.Tensor) and inputs.ndim == 4 and inputs.shape[1] > 1


def _two_pieces(batch: Batch) -> list[Batch]:
    if batch.size < 2:
        return [batch]
    middle = (2 * batch.size + 2) // 3
    middle = min(middle, batch.size - 1)
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]


def _without_single_samples(batches: Sequence[Batch]) -> list[Batch]:
    # Normalization in train mode refuses a batch of one; its weight in the statistics is negligible.
    kept = [batch for batch in batches if batch.size > 1]
    return kept or list(batches)
