"""Records of a training whose run directory lies behind a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .record_uploads import RecordUploads
from .run_files import RemotePath
from .summary_collection import SummaryCollection
from .summary_plan import SummaryPlan

# Only the last event file grows, so that of a long training this much is uploaded again and again.
LARGEST_FILE = 32 * 2**20


class RemoteCollection(SummaryCollection):
    """A ``SummaryCollection`` that is written on this machine and uploaded while training goes on.

    What cannot be uploaded is a warning, as what cannot be written.

    Args:
        directory: the run directory.
        plan: what to record; without a limit of its own, event files are begun anew after 32 MiB.
        begin: the number of steps done before.

    Raises:
        ImportError: TensorBoard is not installed.
        RunDirectoryError: the run directory cannot be written.
        OSError: the temporary folder of this machine cannot be written.
    """

    def __init__(self, directory: RemotePath, plan: SummaryPlan, begin: int = 0) -> None:
        self._uploads = RecordUploads(directory)
        try:
            super().__init__(
                self._uploads.folder, replace(plan, max_file_size=plan.max_file_size or LARGEST_FILE), begin
            )
        except BaseException:
            self._uploads.close()
            raise

    def end_step(self, params: Mapping[str, Any]) -> None:
        """Records a step where that is due."""
        super().end_step(params)
        self._uploads.warn_of_failure()

    def close(self, error: BaseException | None = None) -> None:
        """Waits until everything is uploaded; what could not be is a warning, or a note of the error."""
        try:
            super().close(error)
        finally:
            self._uploads.close(error)
