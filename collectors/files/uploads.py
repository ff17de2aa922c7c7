"""Records of a run behind a URL: written into a folder of this machine, from which a thread uploads them."""

from __future__ import annotations

import shutil
import warnings

from .background import LAST_PAUSES_SECONDS, WritingThread, retry
from .local_files import TemporaryFolder, unsent_folder
from .remote_path import RemotePath

INTERVAL_SECONDS = 30.0
# Uploading takes at most a tenth of the time, however slow the network is.
_REST = 9


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
        self._uploads.close()
        try:
            retry(self._upload_changed, LAST_PAUSES_SECONDS, when=lambda _: True)
        except Exception as failure:
            # The folder itself would go with the next run.
            kept = shutil.move(self.folder, str(unsent_folder()))
            text = (
                f"records could not be uploaded to {self._target}: {failure}. They are kept in {kept}; copy them there."
            )
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
