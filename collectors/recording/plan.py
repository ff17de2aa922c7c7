"""What a SummaryCollector was asked to record, and what becomes of it where TensorBoard is missing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .collection_steps import CollectionSteps
from .event_files import require_tensorboard
from .lineage import check_custom_lineage
from .run_files import AnyPath, RemotePath
from .summary_arguments import check_export_options
from .summary_items import SummaryItems
from .validation import check_int, wrong_type

# By this suffix a collector knows its own files from those of other records in the directory.
FILE_SUFFIX = "_collector_MS"
_OWN_FILE = re.compile(
    rf"events\.out\.tfevents\.summary\.(\d{{10,}})\..+\.\d+\.([0-9a-f]{{12}})\.\d{{5,}}{FILE_SUFFIX}(_lineage)?"
)
INSTALL = "pip install 'summary-landscape[tensorboard]'"


@dataclass(frozen=True)
class SummaryPlan:
    """The summary part of a SummaryCollector's arguments, checked.

    Attributes:
        items: what to record.
        steps: when.
        custom_lineage: the user's own facts.
        max_file_size: bytes after which the next event file is begun.
        export_options: how tensors are exported.
    """

    items: SummaryItems
    steps: CollectionSteps
    custom_lineage: Mapping[str, int | float | str] = field(default_factory=dict)
    max_file_size: int | None = None
    export_options: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def from_arguments(
        cls,
        collect_freq: Any,
        specified: Mapping[str, Any],
        keep_default_action: bool,
        custom_lineage_data: Any,
        collect_tensor_freq: Any,
        max_file_size: Any,
        export_options: Any,
    ) -> SummaryPlan:
        """Returns the plan of a SummaryCollector's arguments; ``specified`` is checked already.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value.
        """
        every = check_int("collect_freq", collect_freq, minimum=1)
        return cls(
            SummaryItems.merged(specified, keep_default_action),
            CollectionSteps(every, _optional_positive("collect_tensor_freq", collect_tensor_freq)),
            _check_lineage(custom_lineage_data),
            _optional_positive("max_file_size", max_file_size),
            check_export_options(export_options),
        )

    @property
    def is_asked_for(self) -> bool:
        """Whether the user asked for a summary in so many words, rather than by leaving defaults alone."""
        given = (self.items.asked, self.custom_lineage, self.export_options, self.steps.tensors_every)
        return any(given) or self.max_file_size is not None

    def where_possible(self, says_something: bool, landscape: bool) -> SummaryPlan | None:
        """Returns the plan, or None where there is nothing to record or no TensorBoard to record it with.

        Args:
            says_something: whether the user gave ``collect_specified_data``.
            landscape: whether checkpoints for landscapes are collected.

        Raises:
            ImportError: the user asked for summaries, and TensorBoard is not installed.
        """
        if not self.items.names and not self.is_asked_for:
            return None
        try:
            require_tensorboard()
        except ImportError:
            if self.is_asked_for:
                raise
            # Whoever only wants landscapes, and says no more than that, need not hear of summaries.
            if says_something or not landscape:
                warnings.warn(
                    f"SummaryCollector records no summaries, because TensorBoard cannot be imported; {INSTALL}, or say "
                    "keep_default_action=False to do without.",
                    UserWarning,
                    stacklevel=3,
                )
            return None
        return self


def remove_own_records(directory: AnyPath) -> None:
    """Removes what earlier collectors recorded in a directory; what others recorded there stays.

    Raises:
        OSError: something cannot be removed.
    """
    if isinstance(directory, RemotePath):
        _remove_remote_records(directory)
        return
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        match = _OWN_FILE.fullmatch(path.name)
        if match is None or not (path.is_file() or path.is_symlink()):
            continue
        path.unlink()
        _remove_exports(directory / f"export_{int(match[1])}_{match[2]}")


def _remove_remote_records(directory: RemotePath) -> None:
    for file in directory.files():
        match = _OWN_FILE.fullmatch(file.name)
        if match is not None:
            file.unlink(missing_ok=True)
            for tensor in (directory / f"export_{int(match[1])}_{match[2]}" / "tensor").files():
                if tensor.suffix == ".npy":
                    tensor.unlink(missing_ok=True)


def _remove_exports(directory: Path) -> None:
    folder = directory / "tensor"
    if directory.is_symlink() or folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.glob("*.npy"):
        path.unlink()
    for emptied in (folder, directory):
        if not any(emptied.iterdir()):
            emptied.rmdir()


def _check_lineage(value: Any) -> dict[str, int | float | str]:
    if value is not None and not isinstance(value, Mapping):
        raise wrong_type("custom_lineage_data", "a dict or None", value)
    return check_custom_lineage("custom_lineage_data", value or {})


def _optional_positive(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, minimum=1)
