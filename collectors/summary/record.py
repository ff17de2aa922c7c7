"""SummaryRecord: records curves, images, histograms, tensors, graphs and lineage for TensorBoard."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from ..networks.weight_space import some_names
from ..validation import check_bool, check_choice, check_int, check_path, wrong_type
from . import writer
from .graph import network_graph
from .values import SummaryStep, SummaryValue, check_network, check_plugin, check_value

if TYPE_CHECKING:
    import torch


MODES = ("train", "eval")


class SummaryRecord:
    """Writes values that belong to a step into event files, which TensorBoard opens.

    ``add_value`` takes values, ``record`` writes those taken since the last call under a step's number. Writing
    happens on a thread of its own, which begins with the first record. Several records may be open at once, in one
    directory too. A forked process may go on with a record, and a spawned one may be given it: each writes files of
    its own.

    Args:
        log_dir: the directory of the files; it is created.
        file_prefix: what file names begin with: ASCII letters, digits, ``_`` and, not in front, ``.``.
        file_suffix: what file names end with; the same characters.
        network: whose graph is recorded once, with the first record.
        max_file_size: bytes after which the next file is begun; None sets no limit. Nothing is ever left out.
        raise_exception: what ``record`` does when writing has failed: True raises, False warns once and returns
            False. ``flush`` and ``close`` raise in both cases.
        export_options: ``{"tensor_format": "npy"}`` writes tensors as ``.npy`` files as well, below ``export_*``.
        num_process: accepted for scripts written for the reference; one thread writes in any case.

    Raises:
        ImportError: TensorBoard is not installed.
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        NotADirectoryError: ``log_dir`` is a file.
        PermissionError: ``log_dir`` may not be created or written.
    """

    def __init__(
        self,
        log_dir: str | PathLike[str],
        file_prefix: str = "events",
        file_suffix: str = "_MS",
        network: torch.nn.Module | None = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: Mapping[str, str | None] | None = None,
        *,
        num_process: int = 32,
    ) -> None:
        directory = check_path("log_dir", log_dir)
        self._prefix = writer.check_name_part("file_prefix", file_prefix)
        self._suffix = writer.check_name_part("file_suffix", file_suffix)
        self._network = check_network("network", network)
        self._max_file_size = writer.check_max_file_size(max_file_size)
        self._raise_exception = check_bool("raise_exception", raise_exception)
        self._export_options = writer.check_export_options(export_options)
        check_int("num_process", num_process, minimum=1)
        writer.require_tensorboard()
        self._directory = writer.prepare_directory(directory)
        self._mode = "train"
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str], tuple[SummaryValue, ...]] = {}
        self._graph_recorded = False
        self._warned = False
        exports = self._export_options.get("tensor_format") == "npy"
        self._files = writer.EventFiles(self._directory, self._prefix, self._suffix, self._max_file_size, exports)
        self._writer = writer.SummaryWriter(self._files, str(self._directory))
        # Closes at the interpreter's exit too, if nobody did; it must not keep the record itself alive.
        weakref.finalize(self, self._writer.abandon)

    @property
    def log_dir(self) -> str:
        """The full path of the file that is written now, or will be with the next record."""
        self._follow_fork()
        return str(self._files.path)

    def set_mode(self, mode: str) -> None:
        """Sets the phase, "train" or "eval"; what ``capture`` is given counts in training only.

        Raises:
            TypeError: it is not a str.
            ValueError: it is another str.
        """
        self._mode = check_choice("mode", mode, MODES)

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Takes a copy of a value for the next ``record``.

        Numbers, NumPy arrays and tensors are taken; bfloat16 becomes float32. By plugin:

        - ``scalar``: one real number (kept as float32).
        - ``image``: a batch of shape (N, C, H, W) or (N, H, W, C), the former where both would do; 1, 3 or 4
          channels. Shown eight a row. uint8 keeps its values; other values outside [0, 1] (integers: outside
          0 to 255) are scaled so that the batch fills the range.
        - ``tensor``, ``histogram``: an array with at least one axis. NaN and infinities of a histogram are counted in
          series beside it, ``<name>/nan`` and the like.
        - ``graph``: a ``torch.nn.Module``, a GraphDef, or one serialized; TensorBoard shows it without the name.
        - ``train_lineage``, ``eval_lineage``: a ``TrainLineage`` or ``EvalLineage``, or a dict with their fields.
        - ``custom_lineage_data``: a dict from str to int, float or str.
        - ``dataset_graph``: nested dicts that describe the data pipeline.
        - ``landscape`` (or ``LANDSCAPE``): an object whose ``summary_values()`` returns a dict from ``image``,
          ``tensor``, ``scalar`` or ``histogram`` to an array; each is written as ``<name>/<plugin>``.

        A name that was added twice for one step keeps the newest value, with a warning. A name already recorded under
        another plugin gets the plugin's name appended.

        Raises:
            TypeError: an argument, or an element of the value, has the wrong type.
            ValueError: the plugin is unknown, the name is empty, the value has a shape that the plugin cannot take, or
                the record is closed.
        """
        self._follow_fork()
        if self._closed:
            raise self._is_closed()
        plugin = check_plugin(plugin)
        values = check_value(plugin, name, value)
        with self._lock:
            repeated = (plugin, name) in self._pending
            self._pending[plugin, name] = values
        if repeated:
            message = f"the {plugin} {name!r} was added twice for one step; the newest value is kept."
            warnings.warn(message, UserWarning, stacklevel=2)

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a forward pass: as ``add_value``, but in training only, and silently the newest.

        Raises:
            TypeError: as ``add_value``.
            ValueError: as ``add_value``.
        """
        self._follow_fork()
        if self._mode == "train":
            plugin = check_plugin(plugin)
            values = check_value(plugin, name, value)
            with self._lock:
                self._pending[plugin, name] = values

    def record(
        self,
        step: int,
        train_network: torch.nn.Module | None = None,
        plugin_filter: Callable[[str], object] | None = None,
    ) -> bool:
        """Hands the values taken since the last call to the writing thread.

        Waits while the disk is slower than training and much is waiting to be written.

        Args:
            step: the number under which they are shown.
            train_network: whose graph is recorded once, where the constructor was given no network.
            plugin_filter: called with a plugin's name; values of a plugin for which it returns something false are
                dropped.

        Returns:
            Whether the values were accepted; always True, or an error, with ``raise_exception``.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the step does not fit 64 bits; with ``raise_exception``, the record is closed.
            SummaryWriteError: with ``raise_exception``, something could not be written.
        """
        self._follow_fork()
        step = check_int("step", step, minimum=-(2**63), maximum=2**63 - 1)
        train_network = check_network("train_network", train_network)
        if plugin_filter is not None and not callable(plugin_filter):
            raise wrong_type("plugin_filter", "a function of a plugin's name, or None", plugin_filter)
        if self._closed:
            return self._refuse(self._is_closed())
        values: list[SummaryValue] = []
        network = self._network or train_network
        if network is not None and not self._graph_recorded:
            self._graph_recorded = True
            values.append(SummaryValue("graph", "graph", "network", network_graph(network)))
        values += self._take(plugin_filter)
        try:
            # A writer that has failed says so even if there is nothing to write.
            self._writer.check()
            if values:
                self._writer.write(SummaryStep(step, time.time(), tuple(values)))
        except writer.SummaryWriteError as error:
            return self._refuse(error)
        return True

    def flush(self) -> None:
        """Returns when everything that was recorded is on the disk; what was added since still waits for ``record``.

        Raises:
            SummaryWriteError: something could not be written.
        """
        self._follow_fork()
        self._writer.flush()

    def close(self) -> None:
        """Returns when everything that was recorded is on the disk and the files are closed and read-only.

        Values that were added since the last ``record`` have no step and are not written; a warning names them.

        Raises:
            SummaryWriteError: something could not be written.
        """
        self._follow_fork()
        self._closed = True
        with self._lock:
            lost = [f"{plugin} {name!r}" for plugin, name in self._pending]
            self._pending.clear()
        if lost:
            warnings.warn(
                f"what was added to the SummaryRecord of {self._directory} since its last record(step) is not written, "
                f"{len(lost)} in all: {some_names(lost, str)}. Call record(step) after add_value.",
                UserWarning,
                stacklevel=2,
            )
        self._writer.close()

    def __enter__(self) -> Self:
        if self._closed:
            raise self._is_closed()
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except writer.SummaryWriteError as failure:
            if error is None:
                raise
            # The error that ended the training is the one to see first.
            error.add_note(str(failure))

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process writes files of its own; values that wait here are recorded here.
        options = (self._max_file_size, self._raise_exception, self._export_options)
        return SummaryRecord, (str(self._directory), self._prefix, self._suffix, self._network, *options)

    def _is_closed(self) -> ValueError:
        return ValueError(f"the SummaryRecord of {self._directory} is closed; open a new one.")

    def _follow_fork(self) -> None:
        # A forked process inherits locks that may be held, and no thread: it starts afresh, with its own file.
        if self._process != os.getpid():
            self._begin()

    def _take(self, plugin_filter: Callable[[str], object] | None) -> list[SummaryValue]:
        with self._lock:
            waiting, self._pending = self._pending, {}
        try:
            kept = {plugin for plugin in {key[0] for key in waiting} if plugin_filter is None or plugin_filter(plugin)}
        except BaseException:
            with self._lock:
                self._pending = {**waiting, **self._pending}
            raise
        return [value for key, values in waiting.items() if key[0] in kept for value in values]

    def _refuse(self, error: Exception) -> bool:
        if self._raise_exception:
            raise error
        if not self._warned:
            self._warned = True
            warnings.warn(f"nothing is recorded: {error}", RuntimeWarning, stacklevel=3)
        return False
