"""The records of one training or evaluation, in event files on this machine or uploaded to a URL."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from typing import Any

from ..callbacks.callback import step_loss
from ..files.background import LAST_PAUSES_SECONDS, WritingThread, retry
from ..files.local_files import TemporaryFolder, unsent_folder
from ..files.places import AnyPath
from ..files.remote_path import RemotePath
from ..run_directory.existing_run import FILE_SUFFIX
from ..summary.graph import is_torch_network
from ..summary.lineage import custom_lineage_with_environment
from ..summary.record import SummaryRecord
from ..summary.writer import SummaryWriteError
from . import facts
from .plan import HISTOGRAMS, Parameters, SummaryPlan

# Only the last event file grows, so this is the most that a long training uploads again and again.
LARGEST_FILE = 32 * 2**20
INTERVAL_SECONDS = 30.0
# Uploading takes at most a tenth of the time, however slow the network is.
_REST = 9


class SummaryCollection:
    """Records one training or evaluation in event files; what cannot be recorded ends its item with a warning."""

    def __init__(self, directory: AnyPath, plan: SummaryPlan, params: Parameters) -> None:
        self._plan = plan
        self._items = set(plan.items)
        self._step = int(params.get("cur_step_num", 0))
        self._is_first = True
        self._evaluating = False
        self._rates: list[Any] | None = None
        self._first_rate: float | None = None
        self._rate_changed = False
        self._histograms: dict[str, Any] | None = None
        self._batch_size: int | None = None
        self._custom_is_recorded = False
        self._failure_is_told = False
        self._learn(params)
        dataset, has_lineage = params.get("train_dataset"), "collect_train_lineage" in self._items
        self._samples = facts.EpochSamples(dataset is not None and has_lineage and facts.dataset_size(dataset) is None)
        # Last, so that nothing stays open where something fails.
        self._uploads: RecordUploads | None = None
        folder: Any = directory
        size = plan.max_file_size
        if isinstance(directory, RemotePath):
            self._uploads = RecordUploads(directory)
            folder, size = self._uploads.folder, size or LARGEST_FILE
        try:
            self._record = SummaryRecord(
                folder, file_suffix=FILE_SUFFIX, max_file_size=size, export_options=plan.export_options
            )
        except BaseException:
            if self._uploads is not None:
                self._uploads.close()
            raise

    def begin_step(self, params: Parameters) -> None:
        """Looks at the learning rate that the step will use: callbacks may set the next one before it ends."""
        self._learn(params)
        if self._is_first or self._plan.collects(int(params["cur_step_num"])):
            self._rates = facts.learning_rates(params.get("optimizer"))

    def end_step(self, params: Parameters) -> None:
        self._step = step = int(params["cur_step_num"])
        first, self._is_first = self._is_first, False
        self._samples.add(params.get("train_dataset_element"))
        if first:
            self._record_once(params)
        due = first or self._plan.collects(step)
        if due:
            self._add_values(params)
        if due or self._plan.collects_tensors(step, self._total):
            self._write()
        if self._uploads is not None:
            self._uploads.warn_of_failure()

    def end_epoch(self, params: Parameters) -> None:
        self._samples.end_epoch(params.get("batch_num"))

    def end_training(self, params: Parameters) -> None:
        if "collect_train_lineage" not in self._items:
            return
        for rate in facts.learning_rates(params.get("optimizer"))[:1]:
            self._rate_changed |= self._first_rate is not None and float(rate) != self._first_rate
        rate = None if self._rate_changed else self._first_rate
        known = params, rate, self._batch_size, self._samples.total
        self._add("train_lineage", "train_lineage", facts.train_lineage, *known)
        self._write()

    def begin_evaluation(self) -> None:
        """Leaves out what networks capture while they are evaluated."""
        self._evaluating = True

    def abandon_evaluation(self) -> None:
        self._evaluating = False

    def end_evaluation(self, params: Parameters) -> None:
        """Records how an evaluation ended, under the training step that it followed (0 without any)."""
        self._evaluating = False
        self._record_custom_lineage()
        if "collect_eval_lineage" in self._items:
            self._add("eval_lineage", "eval_lineage", facts.eval_lineage, params)
            self._write()

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a forward pass, where the step that it belongs to is recorded."""
        if self._evaluating or not getattr(self._network, "training", True):
            return
        step, plan = self._step + 1, self._plan
        due = plan.collects_tensors(step, self._total) if plugin == "tensor" else plan.collects(step)
        if due or self._is_first:
            self._record.capture(plugin, name, value)

    def close(self, error: BaseException | None = None) -> None:
        """Waits until everything is on the disk; what could not be written is a warning, or a note of the error."""
        try:
            self._record.close()
        except SummaryWriteError as failure:
            if error is None and not self._failure_is_told:
                warnings.warn(f"the summary is incomplete: {failure}", RuntimeWarning, stacklevel=4)
            elif error is not None:
                error.add_note(f"The summary is incomplete as well: {failure}")
        finally:
            if self._uploads is not None:
                self._uploads.close(error)

    def _learn(self, params: Parameters) -> None:
        self._network = params.get("network")
        epochs, batches = params.get("epoch_num"), params.get("batch_num")
        self._total: int | None = None if epochs is None or batches is None else epochs * batches

    def _record_once(self, params: Parameters) -> None:
        self._batch_size = facts.dataset_batch_size(params.get("train_dataset"), params.get("train_dataset_element"))
        if is_torch_network(self._network):
            self._try("collect_graph", self._add_graph)
        dataset = params.get("train_dataset")
        if dataset is not None:
            self._add("dataset_graph", "train_dataset", facts.dataset_graph, dataset)
        self._record_custom_lineage()

    def _record_custom_lineage(self) -> None:
        if not self._custom_is_recorded:
            self._custom_is_recorded = True
            custom = custom_lineage_with_environment(self._plan.custom_lineage)
            if custom:
                self._record.add_value("custom_lineage_data", "custom_lineage_data", custom)
                self._write()

    def _add_graph(self) -> None:
        from ..model_checkpoint.random_state import capture_random_state, restore_random_state

        # Following the data flow runs the forward function, which may draw random numbers.
        random = capture_random_state(None)
        try:
            self._record.add_value("graph", "train_network/auto", self._network)
        finally:
            restore_random_state(random, None)

    def _add_values(self, params: Parameters) -> None:
        if self._rates is None:
            self._rates = facts.learning_rates(params.get("optimizer"))
        rates, self._rates = [float(rate) for rate in self._rates], None
        if rates:
            self._first_rate = rates[0] if self._first_rate is None else self._first_rate
            self._rate_changed |= rates[0] != self._first_rate
        self._try("collect_metric", lambda: self._add_metric(params, rates))
        self._try("collect_input_data", lambda: self._add_images(params))
        self._try(HISTOGRAMS, lambda: self._add_histograms(params))

    def _add_metric(self, params: Parameters, rates: list[float]) -> None:
        if params.get("net_outputs") is not None:
            self._record.add_value("scalar", "loss/auto", step_loss(params["net_outputs"]))
        for group, rate in enumerate(rates):
            series = "auto" if group == 0 else f"group_{group}/auto"
            self._record.add_value("scalar", f"learning_rate/{series}", rate)

    def _add_images(self, params: Parameters) -> None:
        element = params.get("train_dataset_element")
        images = facts.input_images(element)
        if images is not None:
            self._record.add_value("image", "input_data/auto", images)
            return
        self._items.discard("collect_input_data")
        # A user who leaves the defaults alone need not hear that a table is not a picture.
        if element is not None and "collect_input_data" in self._plan.asked:
            warnings.warn(
                "collect_input_data records nothing: batches must begin with images, a tensor of shape (N, C, H, W) or "
                "(N, H, W, C) with 1, 3 or 4 channels.",
                UserWarning,
                stacklevel=6,
            )

    def _add_histograms(self, params: Parameters) -> None:
        if self._histograms is None:
            pattern = self._plan.pattern
            self._histograms = facts.histogram_parameters(self._network, params.get("optimizer"), pattern)
            if not self._histograms and HISTOGRAMS in self._plan.asked:
                matching = "" if pattern is None else f" whose name begins with a match of {pattern.pattern!r}"
                raise ValueError(f"the optimizer moves no parameter of the network{matching}")
        for name, parameter in self._histograms.items():
            # A parameter may be a single number, without any axis.
            self._record.add_value("histogram", f"{name}/auto", parameter.reshape(-1))

    def _write(self) -> None:
        # The record has warned when it returns False.
        self._failure_is_told |= not self._record.record(self._step)

    def _add(self, plugin: str, name: str, read: Callable[..., Any], *arguments: Any) -> None:
        self._try(f"collect_{plugin}", lambda: self._record.add_value(plugin, name, read(*arguments)))

    def _try(self, item: str, add: Callable[[], None]) -> None:
        if item not in self._items:
            return
        try:
            add()
        except (TypeError, ValueError) as error:
            self._items.discard(item)
            warnings.warn(f"{item} records no more in this run: {error}", UserWarning, stacklevel=5)


class RecordUploads:
    """A folder whose files are uploaded about every 30 s if changed, forked processes' too, none with a leading dot."""

    def __init__(self, target: RemotePath) -> None:
        target.check_writable("summary_dir")
        self._target = target
        self._local = TemporaryFolder("landscape-records-")
        self.folder = self._local.path / "records"
        self.folder.mkdir()
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._failure: Exception | None = None
        self._failure_is_told = False
        self._uploads = WritingThread("record-uploads", save=self._try_to_upload, interval=INTERVAL_SECONDS, rest=_REST)
        self._uploads.touch()

    def warn_of_failure(self) -> None:
        """Warns once when an upload has failed; it is tried again anyway."""
        if self._failure is not None and not self._failure_is_told:
            self._failure_is_told = True
            warnings.warn(
                f"records cannot be uploaded to {self._target} now: {self._failure}. It is tried again until training "
                "ends.",
                RuntimeWarning,
                stacklevel=4,
            )

    def close(self, error: BaseException | None = None) -> None:
        """Uploads what is left and removes the folder; a failure keeps it, with a warning or a note on ``error``."""
        if not self._uploads.is_open:
            return
        try:
            self._uploads.close()
            retry(self._upload_changed, LAST_PAUSES_SECONDS, when=lambda _: True)
        except BaseException as failure:
            # The folder itself would go with the next run.
            kept = shutil.move(self.folder, str(unsent_folder()))
            reason = str(failure) or type(failure).__name__
            text = (
                f"records could not be uploaded to {self._target}: {reason}. They are kept in {kept}; copy them there."
            )
            if not isinstance(failure, Exception):
                failure.add_note(text)
                raise
            if error is None:
                warnings.warn(text, RuntimeWarning, stacklevel=5)
            else:
                error.add_note(text)
        finally:
            self._local.remove()

    def _try_to_upload(self) -> None:
        try:
            self._upload_changed()
            self._failure = None
        except Exception as error:
            self._failure = error
        # Nobody says when a record was written: a forked process may do that as well.
        self._uploads.touch()

    def _upload_changed(self) -> None:
        copy = self._local.path / "copy"
        for file in sorted(self.folder.iterdir()):
            state = file.stat()
            seen = (state.st_size, state.st_mtime_ns)
            if file.name.startswith(".") or self._uploaded.get(file.name) == seen:
                continue
            # A file that grows while it is sent would not have the length that was announced.
            shutil.copyfile(file, copy)
            (self._target / file.name).upload(copy)
            self._uploaded[file.name] = seen
        copy.unlink(missing_ok=True)
