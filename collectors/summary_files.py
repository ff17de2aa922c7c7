"""Everything that a summary record leaves on disk: event files, the lineage beside them, exported tensors."""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

from .atomic_files import replacing
from .event_files import EventFiles, write_event_file
from .network_state import Array
from .summary_encoding import LINEAGE_KINDS, SummaryEncoder, lineage_summary
from .summary_values import SummaryStep

_LONGEST_TAG = 180


class SummaryFiles:
    """Writes steps into files; not for use by several threads.

    Args:
        events: the event files.
        export_tensors: whether tensors are written as ``.npy`` files as well; ``max_file_size`` does not limit them.
    """

    def __init__(self, events: EventFiles, export_tensors: bool) -> None:
        self._events = events
        self._export_tensors = export_tensors
        self._encoder = SummaryEncoder()
        self._lineage: dict[str, Mapping[str, Any]] = {}

    def write(self, step: SummaryStep) -> None:
        """Writes one step.

        Raises:
            OSError: it cannot be written.
        """
        for event in self._encoder.encode(step):
            self._events.write(event)
        for value in step.values:
            if value.kind == "tensor" and self._export_tensors:
                assert isinstance(value.content, np.ndarray)
                self._export(value.name, step.step, value.content)
        found = {value.kind: value.content for value in step.values if value.kind in LINEAGE_KINDS}
        if found:
            self._lineage.update(found)  # type: ignore[arg-type]
            self._write_lineage(step)

    def sync(self) -> None:
        """Returns when everything written is on the disk."""
        self._events.sync()

    def close(self) -> None:
        """Makes everything durable and read-only."""
        self._events.close()
        if self._lineage:
            self._events.lineage_path.chmod(0o400)

    def _write_lineage(self, step: SummaryStep) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        # TensorBoard takes a run's hyperparameters from one event only, the first. The facts come in several calls,
        # so this file is replaced by one that holds them all.
        summary = lineage_summary(self._lineage, self._events.created)
        event = Event(step=step.step, wall_time=step.wall_time, summary=summary)
        write_event_file(self._events.lineage_path, [event.SerializeToString()], self._events.token)

    def _export(self, name: str, step: int, content: Array) -> None:
        tag = urllib.parse.quote(name, safe="")
        if len(tag) > _LONGEST_TAG:
            tag = f"{tag[:_LONGEST_TAG]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        folder = self._events.directory / f"export_{self._events.created}_{self._events.token}" / "tensor"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{tag}_{step}.npy"
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, content, allow_pickle=False)
