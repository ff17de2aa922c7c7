"""Writes summaries while training goes on: event files, tensors as ``.npy`` files, and a file for the lineage."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeError, reason_of
from ..files.background import OrderedJobs, WriterClosedError
from ..files.local_files import writing
from ..files.system import as_compared, protect
from .event_files import EventFiles, write_event_file
from .lineage import LINEAGE_KINDS
from .values import SummaryStep

LONGEST_QUEUE = 1024
LARGEST_QUEUE_BYTES = 64 * 2**20
_LONGEST_TAG = 180


class SummaryWriteError(LandscapeError, OSError):
    """A summary could not be written, for example because the disk is full."""


class SummaryFiles(EventFiles):
    """Writes steps into event files, and tensors into ``.npy`` files if asked to; not for use by several threads."""

    def __init__(
        self, directory: Path, prefix: str, suffix: str, max_file_size: int | None, export_tensors: bool
    ) -> None:
        from . import encoding

        super().__init__(directory, prefix, suffix, max_file_size)
        self._export_tensors = export_tensors
        self._encoder, self._encode_lineage = encoding.SummaryEncoder(), encoding.encode_lineage
        self._lineage: dict[str, Mapping[str, Any]] = {}
        self._exported: dict[str, str] = {}

    def write(self, step: SummaryStep) -> None:
        for event in self._encoder.encode(step):
            self.write_event(event)
        for value in step.values:
            if value.kind == "tensor" and self._export_tensors:
                assert isinstance(value.content, np.ndarray)
                self._export(value.name, step.step, value.content)
        found = {value.kind: value.content for value in step.values if value.kind in LINEAGE_KINDS}
        if found:
            self._lineage.update(found)  # type: ignore[arg-type]
            # TensorBoard takes a run's hyperparameters from one event only, the first. The facts come in several
            # calls, so this file is replaced by one that holds them all.
            event = self._encode_lineage(self._lineage, self.created, step)
            write_event_file(self.lineage_path, event, self.token)

    def close(self) -> None:
        super().close()
        if self._lineage:
            protect(self.lineage_path)

    def _export(self, name: str, step: int, content: NDArray[Any]) -> None:
        tag = urllib.parse.quote(name, safe="")
        # Of two names that are one file to the system, the second is told apart as well.
        if len(tag) > _LONGEST_TAG or self._exported.setdefault(as_compared(tag), name) != name:
            tag = f"{tag[:_LONGEST_TAG]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        folder = self.directory / f"export_{self.created}_{self.token}" / "tensor"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{tag}_{step}.npy"
        with writing(path) as file:
            np.lib.format.write_array(file, content, allow_pickle=False)


class SummaryWriter(OrderedJobs):
    """Writes steps on a thread of its own, which begins with the first step and sleeps while there is nothing to do."""

    def __init__(self, files: SummaryFiles, label: str) -> None:
        self._files = files
        self._label = label
        self._is_synced = True
        explain = self._write_error
        super().__init__(
            "summary-writer", LONGEST_QUEUE, most_bytes=LARGEST_QUEUE_BYTES, last=files.close, explain=explain
        )

    def write(self, step: SummaryStep) -> None:
        """Takes a step over; waits while the queue is full."""
        try:
            self.submit(functools.partial(self._files.write, step), step.size)
        except WriterClosedError as error:
            raise SummaryWriteError(
                f"the SummaryRecord of {self._label} was closed meanwhile; open a new one."
            ) from error
        self._is_synced = False

    def flush(self) -> None:
        # Closing makes everything durable as well.
        with contextlib.suppress(WriterClosedError):
            if not self._is_synced:
                self._is_synced = True
                self.submit(self._files.sync)
        self.wait()

    def abandon(self) -> None:
        """Closes a writer that nobody closed, at exit or when its record is forgotten."""
        # An error that was not raised yet shows as an ignored exception; one that was need not show again.
        with contextlib.suppress(SummaryWriteError) if self.error_was_raised else contextlib.nullcontext():
            self.close()

    def _write_error(self, error: BaseException) -> SummaryWriteError:
        return SummaryWriteError(
            f"summaries cannot be written to {self._label}: {reason_of(error)}. Nothing more is recorded there; make "
            "room or choose another log_dir, then open a new SummaryRecord."
        )
