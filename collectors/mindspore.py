"""The SummaryCollector of MindSpore: a callback for ``mindspore.train.Model``."""

from __future__ import annotations

from typing import Any

from .recording.trainer_collector import TrainerCollector

try:
    import mindspore
except ImportError as error:
    raise ImportError(
        "collectors.mindspore needs MindSpore; install it with pip install 'summary-landscape[mindspore]'."
    ) from error


class SummaryCollector(TrainerCollector, mindspore.train.Callback):  # type: ignore[misc]
    """Records a training for TensorBoard, and saves checkpoints from which landscapes are drawn later.

    Example::

        collector = SummaryCollector("run", collect_landscape={"intervals": [range(1, 6)], "unit": "epoch"})
        model.train(5, dataset, callbacks=[collector], dataset_sink_mode=False)

    It takes the arguments of ``collectors.SummaryCollector``. Steps and epochs are counted from the beginning of the
    training, also where it starts at an ``initial_epoch``.
    In sink mode under graph mode MindSpore shows callbacks no single steps: one step of the summaries is one sink.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed.
    """

    def on_train_begin(self, run_context: Any) -> None:
        """Checks that this training can be collected.

        Raises:
            ValueError: there is another SummaryCollector, or single steps are asked for and cannot be seen.
        """
        parameters = run_context.original_args()
        if sum(isinstance(item, SummaryCollector) for item in parameters.list_callback) > 1:
            raise ValueError("callbacks must hold at most one SummaryCollector; remove the others.")
        if self._counts_steps and _hides_steps(parameters):
            raise ValueError(
                'collect_landscape has unit="step", but with dataset_sink_mode=True MindSpore shows callbacks no '
                'single steps; train with dataset_sink_mode=False, or collect with unit="epoch".'
            )

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Opens the run directory in the first epoch; only then it is known where the training starts."""
        if self._run is not None:
            return
        parameters = run_context.original_args()
        epochs_done = parameters.cur_epoch_num - 1
        # MindSpore counts steps from zero again after ``initial_epoch``.
        steps_done = parameters.cur_step_num or epochs_done * parameters.batch_num
        # MindSpore has no hook for exceptions, but it leaves every callback's context.
        self._open(
            parameters.network,
            steps_per_epoch=parameters.batch_num,
            start_epoch=epochs_done,
            start_step=steps_done,
            epochs=epochs_done + parameters.epoch_num,
        )

    def on_train_step_end(self, run_context: Any) -> None:
        """Saves a checkpoint and records the step, if either is due."""
        if self._run is not None:
            self._run.step(run_context.original_args().net_outputs)

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Saves a checkpoint if one is due; an epoch that was cut short does not count."""
        parameters = run_context.original_args()
        if self._run is not None and parameters.cur_step_num % parameters.batch_num == 0:
            self._run.end_epoch()

    def on_train_end(self, run_context: Any) -> None:
        """Waits until everything is on disk."""
        self._leave(None)


def _hides_steps(parameters: Any) -> bool:
    in_graph = mindspore.get_context("mode") == mindspore.GRAPH_MODE
    return bool(parameters.dataset_sink_mode) and in_graph and parameters.get("sink_size") != 1
