"""Composer: its SummaryCollector, and callbacks of both libraries in each other's trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..recording.summary_collector import SummaryCollector as _SummaryCollector
from ..recording.trainer_collector import HasCollector, takes_arguments_of
from .in_composer import InComposer

if TYPE_CHECKING:
    from composer import Logger, State


class SummaryCollector(HasCollector, InComposer):
    """Records a Composer training for TensorBoard, and saves checkpoints from which landscapes are drawn later.

    A ``composer.Callback`` for ``composer.Trainer(callbacks=[...])`` that collects what
    ``collectors.SummaryCollector`` collects, with the same arguments. What is saved is the ComposerModel that the
    trainer was given, without what the trainer wraps around it, so ``callback_fn`` returns a ComposerModel built alike
    (see ``workers.composer_loss``). A step is a batch, however many microbatches it is made of. The numbers are
    those of Composer's ``state.timestamp``: an epoch that ends early because the duration is over does not count.

    A training that resumes from a checkpoint of Composer (``load_path``, or a second ``Trainer.fit``) continues the
    numbering; pass ``existing="resume"`` to continue the directory of the first part, which a second ``Trainer.fit``
    does by itself. Close the trainer when training fails: Composer does not tell its callbacks of errors. Until then
    the directory lacks at most the checkpoints that are being written.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value; when training begins, the weights are sharded (FSDP).
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed.
    """

    ends_partial_epochs = False

    @takes_arguments_of(_SummaryCollector.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._collector = _SummaryCollector(*arguments, **options)
        super().__init__(self._collector)
        self._has_run = False

    def fit_start(self, state: State, logger: Logger) -> None:
        if state.fsdp_enabled:
            raise ValueError(
                "parallelism_config must not shard the weights (FSDP), because no process has all of them then; train "
                "with DDP, or without the SummaryCollector."
            )
        if self._has_run and int(state.timestamp.batch):
            self._collector._existing = "resume"
        super().fit_start(state, logger)
        self._has_run = True
