"""History: the losses and metrics of a run's epochs, kept in lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..networks.batches import sample_count
from .callback import BuiltInCallback, RunContext, in_evaluation, parameters_of, step_loss

if TYPE_CHECKING:
    import torch


_LOSS = "net_output"


class History(BuiltInCallback):
    """Keeps the loss of each epoch, and the metrics of the evaluations inside ``Model.fit``.

    Both dictionaries are new at the beginning of each run (a training or a ``Model.eval``), and all their lists
    have the same length: entry i of each belongs to ``epoch["epoch"][i]``.

    Attributes:
        epoch: {"epoch": the numbers of the epochs, the first is 1}; [1] for a ``Model.eval``.
        history: {"net_output": the mean of the step losses of each epoch, weighted by their numbers of samples;
            a metric's name, and "eval_loss": the results of each epoch's evaluation, None for an epoch that had
            none}. A step's loss is ``cb_params.net_outputs``: its first item when that is a tuple or list, its
            mean when that is an array. Where the trainer does not show its batches, all steps weigh the same.

    Raises:
        TypeError: in a step, ``net_outputs`` holds no number.
        ValueError: at the end of an epoch, a metric is called "net_output".
    """

    state_is_needed = False
    """A resumed training without this callback loses nothing that it needs."""

    epoch: dict[str, list[int]]
    history: dict[str, list[Any]]
    _total: float | torch.Tensor

    def __init__(self) -> None:
        self._restart()

    def state_dict(self) -> dict[str, Any]:
        """Returns the lists and the mean of the epoch under way, for a checkpoint."""
        return {
            "epoch": list(self.epoch["epoch"]),
            "history": {name: list(values) for name, values in self.history.items()},
            "total": float(self._total),
            "samples": self._samples,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what ``state_dict`` returned."""
        self.epoch = {"epoch": list(state["epoch"])}
        self.history = {name: list(values) for name, values in state["history"].items()}
        self._total, self._samples = state["total"], state["samples"]

    def begin(self, run_context: RunContext) -> None:
        self._restart()

    def epoch_begin(self, run_context: RunContext) -> None:
        self._restart_mean()

    def step_end(self, run_context: RunContext) -> None:
        element = "eval_dataset_element" if in_evaluation(run_context) else "train_dataset_element"
        self._add(parameters_of(run_context), element)

    def epoch_end(self, run_context: RunContext) -> None:
        """In a loop that does not call ``step_end``, ``cb_params.net_outputs`` counts, the epoch's last loss."""
        params = parameters_of(run_context)
        if not self._samples and params.get("net_outputs") is not None:
            self._add(params, "")
        given = None if in_evaluation(run_context) else params.get("eval_results") or params.get("metrics")
        results = _checked_results(given)
        self.epoch["epoch"].append(params.get("cur_epoch_num", 1))
        self.history[_LOSS].append(float(self._total) / self._samples if self._samples else float("nan"))
        self._note_results(results)
        self._restart_mean()

    def end(self, run_context: RunContext) -> None:
        if in_evaluation(run_context) and self.epoch["epoch"]:
            self._note_results(_checked_results(parameters_of(run_context).get("metrics")))

    def _restart(self) -> None:
        self.epoch, self.history = {"epoch": []}, {_LOSS: []}
        self._restart_mean()

    def _restart_mean(self) -> None:
        self._total, self._samples = 0.0, 0

    def _add(self, params: dict[str, Any], element: str) -> None:
        batch = params.get(element)
        inputs, targets = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
        samples = sample_count(inputs, targets)
        # Stays on the accelerator when the loss does, so that no step waits for it.
        self._total = self._total + step_loss(params["net_outputs"]) * samples
        self._samples += samples

    def _note_results(self, results: Mapping[str, Any]) -> None:
        before = len(self.epoch["epoch"]) - 1
        for name in (*self.history, *results):
            if name != _LOSS:
                values = self.history.setdefault(name, [None] * before)
                values[before:] = [results.get(name)]


def _checked_results(results: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if _LOSS in (results or ()):
        raise ValueError(
            f"metrics must not have one called {_LOSS!r}, because History keeps the loss under that name. "
            "Give it another: Model(metrics={'name': metric})."
        )
    return results or {}
