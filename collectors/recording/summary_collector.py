"""SummaryCollector: collects, while a network trains, its summary and what its loss landscape is drawn from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunDirectoryError
from ..files.places import check_can_be_directory, check_directory, has_lost_slashes, with_slashes
from ..files.remote_path import RemotePath
from ..networks.readers import as_watched
from ..process_rank import is_first_rank
from ..run_directory.directory import CHECKPOINT_FOLDER, METADATA_NAME
from ..run_directory.existing_run import EXISTING
from ..run_directory.metadata import RunMetadata
from ..run_directory.settings import LandscapeSettings
from ..run_directory.writer import Snapshots
from ..validation import check_bool, check_choice, check_int, wrong_type
from .plan import SummaryPlan, check_specified, optional_positive
from .watched_training import CollectingCallback, WatchedTraining

if TYPE_CHECKING:
    import numpy as np


class SummaryCollector(CollectingCallback):
    """Records a training for TensorBoard, and saves checkpoints from which landscapes are drawn later.

    Use it as a callback of ``collectors.Model``, or in any PyTorch loop through ``watch``. The first step is recorded,
    then every ``collect_freq``-th. Recording needs TensorBoard (``pip install 'summary-landscape[tensorboard]'``);
    collecting landscapes does not: without it, only what was asked for explicitly is an error.

    ``collect_specified_data`` has these keys. All but ``collect_landscape`` are on by default:

    - ``collect_metric``: the loss as ``loss/auto``, and the learning rate that the step used as ``learning_rate/auto``
      (of further parameter groups as ``learning_rate/group_1/auto``, ...).
    - ``collect_graph``: the network's graph, with the first step.
    - ``collect_train_lineage``: at the end of training, what it was: network, loss, optimizer, learning rate (None
      where it changed), epochs, batch size, data set size and path, the last checkpoint's path and size.
    - ``collect_eval_lineage``: at the end of each evaluation, those inside ``fit`` included, metrics and data set.
    - ``collect_input_data``: the first input of the batch as ``input_data/auto`` where it is an image batch, at most
      64 of its images.
    - ``collect_dataset_graph``: the data pipeline, with the first step.
    - ``histogram_regular``: histograms ``<parameter>/auto`` of the optimizer's parameters whose names this regular
      expression matches from the beginning; None, the default, takes the first five.
    - ``collect_landscape``: checkpoints, with the keys ``intervals`` (list of lists or ranges of numbers), ``unit``
      ("step", the default, or "epoch"), ``landscape_size`` (3 to 256, by default 40), ``num_samples`` (by default
      2048) and ``create_landscape`` ({"train": bool, "result": bool}, both by default).

    In a distributed training rank 0 writes. A summary that cannot be written is a warning; a checkpoint that cannot be
    written stops the training.

    Args:
        summary_dir: the run directory; it is created when training begins. It may be an fsspec URL, such as
            ``s3://bucket/run``: checkpoints are then uploaded while training goes on, records about every 30 s.
        collect_freq: every how many steps is recorded.
        collect_specified_data: what to collect.
        keep_default_action: whether items that ``collect_specified_data`` leaves out keep their defaults; with False
            they are off.
        custom_lineage_data: your own facts about the run, str to int, float or str; recorded with the first step.
        collect_tensor_freq: every how many steps tensors (see ``capture``) are recorded; None chooses: the same steps
            where that makes at most twenty, else about twenty steps spread over the run.
        max_file_size: bytes after which the next event file is begun; None sets no limit.
        export_options: {"tensor_format": "npy"} writes tensors as files as well; None does not.
        collect_landscape: shorthand for the entry in ``collect_specified_data``.
        existing: what to do when the directory already holds checkpoints of a run: "error", "resume" (equal network
            and settings; checkpoints numbered after the restart point are dropped, and those that a killed training
            saved without listing them are taken in) or "overwrite", which also removes what earlier collectors recorded
            there. Otherwise records are added beside those that are there.
        at_end: called with ``summary_dir`` after a training that ended well, when everything is on disk; such as
            ``landscape.DrawAtEnd(callback_fn)``, which draws the run's landscapes. In a distributed training rank 0
            calls it. What it raises becomes a warning: the training is complete.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed; or ``summary_dir`` is a
            URL, and a package that its kind needs is missing.
        RunDirectoryError: ``summary_dir`` is a URL of a kind that is connected to at once, and that fails.
    """

    def __init__(
        self,
        summary_dir: str | PathLike[str],
        collect_freq: int = 10,
        collect_specified_data: Mapping[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: Mapping[str, int | float | str] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: Mapping[str, str | None] | None = None,
        *,
        collect_landscape: Mapping[str, Any] | None = None,
        existing: str = "error",
        at_end: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self._summary_dir = check_directory("summary_dir", summary_dir)
        if not isinstance(self._summary_dir, RemotePath):
            first = with_slashes(summary_dir).split("/")[0]
            # A folder with a colon at its end is too strange to be made by mistake.
            if has_lost_slashes(summary_dir) and not Path(first).exists():
                raise ValueError(
                    f"summary_dir must be a folder or a URL, but got {summary_dir}, which lies in a folder called "
                    f"{first!r}. A URL must be a str; a Path loses its slashes."
                )
            check_can_be_directory("summary_dir", self._summary_dir)
        specified = check_specified(collect_specified_data)
        plan = SummaryPlan(
            collect_freq,
            specified,
            check_bool("keep_default_action", keep_default_action),
            custom_lineage_data,
            collect_tensor_freq,
            max_file_size,
            export_options,
        )
        if isinstance(self._summary_dir, RemotePath) and plan.export_options.get("tensor_format") is not None:
            raise ValueError(
                f"export_options writes tensors into a folder of this machine, but summary_dir is the URL "
                f"{self._summary_dir}; give a folder, or leave export_options out: the tensors are in the event files."
            )
        if collect_landscape is not None and specified.get("collect_landscape") is not None:
            raise ValueError(
                "collect_landscape is given twice, as an argument and inside collect_specified_data; give it once."
            )
        landscape = collect_landscape if collect_landscape is not None else specified.get("collect_landscape")
        self._landscape = None if landscape is None else LandscapeSettings.from_dict(landscape)
        self._existing = check_choice("existing", existing, EXISTING)
        if at_end is not None and not callable(at_end):
            raise wrong_type("at_end", "a function of the run directory, such as landscape.DrawAtEnd(...)", at_end)
        self._at_end = at_end
        self._plan = plan.where_possible(collect_specified_data is not None, self._landscape is not None)

    @property
    def summary_dir(self) -> str:
        """The run directory."""
        return str(self._summary_dir)

    @property
    def counts_steps(self) -> bool:
        """Whether checkpoints are numbered by steps."""
        return self._landscape is not None and self._landscape.unit == "step"

    def watch(
        self,
        network: object,
        *,
        steps_per_epoch: int | None = None,
        start_epoch: int = 0,
        start_step: int | None = None,
        optimizer: object = None,
        epochs: int | None = None,
    ) -> WatchedTraining:
        """Returns a context for a hand-written training loop.

        Example::

            with collector.watch(network) as run:
                for epoch in range(20):
                    for inputs, targets in loader:
                        ...
                        optimizer.step()
                        run.step(loss)
                    run.end_epoch()

        Args:
            network: the network that trains; with JAX, a function without arguments that returns the present
                parameters (see ``collectors.jax``).
            steps_per_epoch: if it is known; otherwise it is counted in the first epoch.
            start_epoch: epochs already done, after a resume.
            start_step: steps already done, after a resume; None takes ``start_epoch`` times ``steps_per_epoch``, or,
                where epochs number the checkpoints, times the steps that the run directory knows.
            optimizer: has its learning rate recorded, and histograms of the parameters that it moves; without it, of
                those that are trained.
            epochs: how many there will be in all, if that is known; with ``steps_per_epoch`` it spreads the records
                of tensors over the run.

        Raises:
            TypeError: an argument has the wrong type; for the network, on entering.
            ValueError: an argument has a wrong value, or nobody knows how many steps ``start_epoch`` epochs had.
            RunDirectoryError: on entering, when the directory already holds a run that may not be touched, another
                training writes there, or it is a URL where nothing can be written.
            CheckpointWriteError: from ``step``, ``end_epoch`` or on leaving, when a checkpoint could not be written.
        """
        optional_positive("steps_per_epoch", steps_per_epoch)
        check_int("start_epoch", start_epoch, minimum=0)
        steps_matter = self.counts_steps or (start_step is None and self._plan is not None and is_first_rank())
        if start_step is None:
            start_step = start_epoch * (steps_per_epoch or self._steps_of_an_epoch(start_epoch))
        check_int("start_step", start_step, minimum=0)
        if start_epoch and not start_step and steps_matter:
            # A resume from step 0 would drop all checkpoints of the earlier part, or its records.
            raise ValueError(
                f"start_step must be given with start_epoch={start_epoch}, because steps are counted, and it is not "
                "known how many an epoch has; it is the number of steps already done. Or give steps_per_epoch."
            )
        optional_positive("epochs", epochs)
        if optimizer is not None and not isinstance(getattr(optimizer, "param_groups", None), list):
            raise wrong_type("optimizer", "an optimizer with param_groups, as PyTorch's are, or None", optimizer)
        return WatchedTraining(
            self,
            {
                "mode": "train",
                "network": as_watched(network),
                "optimizer": optimizer,
                "epoch_num": epochs,
                "batch_num": steps_per_epoch,
                "cur_epoch_num": start_epoch,
                "cur_step_num": start_step,
            },
        )

    def _steps_of_an_epoch(self, start_epoch: int) -> int:
        """Returns how many steps an epoch of the part before a resume had; 0 where that is not known."""
        # Where steps number the checkpoints, all ranks must agree, and some may not see the directory.
        if start_epoch and self._existing == "resume" and not self.counts_steps:
            with contextlib.suppress(RunDirectoryError):
                metadata = RunMetadata.load(self._summary_dir / CHECKPOINT_FOLDER / METADATA_NAME)
                return metadata.step_per_epoch or 0
        return 0

    def snapshot(self, number: int, arrays: Mapping[str, np.ndarray[Any, Any]], *, network: str = "arrays") -> None:
        """Saves named arrays as a checkpoint, where its number is asked for; for trainers that we do not know.

        It belongs inside ``with collector:``, which waits at its end until everything is on disk.

        Example::

            with SummaryCollector("run", collect_landscape={"intervals": [range(11)], "unit": "epoch"}) as collector:
                for epoch in range(11):
                    collector.snapshot(epoch, {"coefficients": coefficients, "intercept": intercept})
                    ...

        Args:
            number: the step or epoch (the unit of ``collect_landscape``), growing from call to call. With
                ``existing="resume"`` the first call's number says where training goes on.
            arrays: name to array; a plane spans the floating-point arrays, all others are buffers. They are copied.
            network: a name for the model that the arrays belong to.

        Raises:
            RuntimeError: the context was not entered.
            TypeError: an argument has the wrong type.
            ValueError: numbers do not grow, the arrays are others than before, or no landscape is collected.
            RunDirectoryError: the directory already holds a run that may not be touched, another training writes
                there, or it is a URL where nothing can be written.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        if not self._entered:
            raise RuntimeError("snapshot belongs inside `with collector:`, which waits until everything is on disk.")
        if self._landscape is None:
            raise ValueError("snapshot needs collect_landscape, which says which numbers are saved; it is None.")
        if self._snapshots is None:
            self._snapshots = Snapshots(self._summary_dir, self._landscape, self._existing, network)
        self._snapshots.add(number, arrays)

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a training forward pass, for example in a hook of a layer.

        It is recorded where its step is: tensors at the steps of ``collect_tensor_freq``, others at those of
        ``collect_freq``; of several values of one name and step the last counts. At other times nothing happens, so
        that a call costs next to nothing.

        Args:
            plugin: "scalar", "image", "tensor" or "histogram".
            name: its name in TensorBoard.
            value: a number, an array or a tensor, as for ``SummaryRecord.add_value``.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the plugin is unknown, the name is empty, or the value has a shape that the plugin cannot take.
        """
        if self._records is not None:
            self._records.capture(plugin, name, value)
