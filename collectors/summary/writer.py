"""TensorBoard's event files, which a thread writes: no two names collide, split at a size, private while they grow."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import struct
import time
import urllib.parse
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeError, reason_of
from ..files import system
from ..files.background import WriterClosedError, WritingThread
from ..files.local_files import naming, writing
from ..files.places import check_can_be_directory
from ..files.system import sync_directory
from ..validation import check_choice, check_instance, check_int, check_keys, wrong_value
from .lineage import LINEAGE_KINDS
from .values import SummaryStep

LONGEST_QUEUE = 1024
LARGEST_QUEUE_BYTES = 64 * 2**20
# Around each record: its length, and a checksum of the length and of the content.
_FRAME_BYTES = 16
_LONGEST_NAME = 255
_LONGEST_TAG = 180
_NAME_PART = re.compile(r"[0-9a-zA-Z_][0-9a-zA-Z_.]*")


def require_tensorboard() -> None:
    """Imports what the writing thread uses: a process forked in the middle of an import would inherit half of it."""
    try:
        from PIL import Image

        from . import encoding  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"SummaryRecord needs TensorBoard, which cannot be imported ({error}). Install it with "
            "pip install 'summary-landscape[tensorboard]'."
        ) from error
    Image.preinit()
    # This imports what makes the checksums.
    record(b"")


class EventFiles:
    """The files of one record in one thread, of ``max_file_size`` bytes or one event each; None: no limit."""

    def __init__(
        self, directory: Path, prefix: str, suffix: str, max_file_size: int | None, export_tensors: bool
    ) -> None:
        from . import encoding

        self.directory = directory
        self.created = int(time.time())
        # Two records of one second, one process or one forked process each need names of their own.
        self.token = uuid.uuid4().hex[:12]
        host = re.sub(r"[^\w.-]", "_", socket.gethostname()) or "localhost"
        # TensorBoard reads the files whose names contain "tfevents", in alphabetical order.
        self._stem = f"{prefix}.out.tfevents.summary.{self.created:010d}.{host}.{os.getpid()}.{self.token}"
        self._suffix = suffix
        self._max_file_size = max_file_size
        self._export_tensors = export_tensors
        self._encoder, self._encode_lineage = encoding.SummaryEncoder(), encoding.encode_lineage
        self._lineage: dict[str, Mapping[str, Any]] = {}
        self._exported: dict[str, str] = {}
        self._number = 1
        self._open: _WholeWrites | None = None
        if len(os.fsencode(self.path.name)) + len("_lineage") > _LONGEST_NAME:
            raise wrong_value(
                "file_prefix and file_suffix", f"short enough for a file name of {_LONGEST_NAME} bytes", self.path.name
            )

    @property
    def path(self) -> Path:
        """The file that is written now, or will be when the first event comes."""
        return self.directory / f"{self._stem}.{self._number:05d}{self._suffix}"

    def write(self, step: SummaryStep) -> None:
        for event in self._encoder.encode(step):
            self._write_event(event)
        for value in step.values:
            if value.kind == "tensor" and self._export_tensors:
                assert isinstance(value.content, np.ndarray)
                self._export(value.name, step.step, value.content)
        found = {value.kind: value.content for value in step.values if value.kind in LINEAGE_KINDS}
        if found:
            self._lineage.update(found)  # type: ignore[arg-type]
            # TensorBoard takes a run's hyperparameters from one event only, the first. The facts come in several
            # calls, so this file is replaced by one that holds them all.
            self._write_lineage(self._encode_lineage(self._lineage, self.created, step))

    def sync(self) -> None:
        if self._open is not None:
            self._open.flush()
            sync_directory(self.directory)

    def close(self) -> None:
        """Makes everything durable and the files read-only; the open one is closed also where that raises OSError."""
        open_file, self._open = self._open, None
        if open_file is not None:
            try:
                open_file.flush()
                system.protect(open_file.path)
                sync_directory(self.directory)
            finally:
                open_file.close()
        if self._lineage:
            system.protect(self._lineage_path)

    @property
    def _lineage_path(self) -> Path:
        """A file beside the others that is read before them."""
        return self.directory / f"{self._stem}.00000{self._suffix}_lineage"

    def _write_event(self, event: bytes) -> None:
        """Writes one serialized event, which can then be read; on OSError the file ends with the event before."""
        size = len(event) + _FRAME_BYTES
        if self._max_file_size is not None and self._open and self._open.size + size > self._max_file_size:
            self.close()
            self._number += 1
        if self._open is None:
            self._open = _WholeWrites(self.path)
            self._open.write(record(_version_event()))
        self._open.write(record(event))

    def _write_lineage(self, event: bytes) -> None:
        """Writes a file of one event at once, in place of the one that may be there."""
        # TensorBoard must not read the unfinished file.
        temporary = self.directory / f".{self.token}.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            with contextlib.closing(_WholeWrites(temporary)) as file:
                file.write(record(_version_event()) + record(event))
                file.flush()
            system.replace(temporary, self._lineage_path)
            sync_directory(self.directory)
        finally:
            temporary.unlink(missing_ok=True)

    def _export(self, name: str, step: int, content: NDArray[Any]) -> None:
        tag = urllib.parse.quote(name, safe="")
        # Of two names that are one file to the system, the second is told apart as well.
        if len(tag) > _LONGEST_TAG or self._exported.setdefault(system.as_compared(tag), name) != name:
            tag = f"{tag[:_LONGEST_TAG]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        folder = self.directory / f"export_{self.created}_{self.token}" / "tensor"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with writing(folder / f"{tag}_{step}.npy") as file:
            np.lib.format.write_array(file, content, allow_pickle=False)


def _version_event() -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event, SourceMetadata

    source = SourceMetadata(writer="summary_landscape")
    event = Event(wall_time=time.time(), file_version="brain.Event:2", source_metadata=source)
    return bytes(event.SerializeToString())


def record(content: bytes) -> bytes:
    """Returns a content as a record: u64 length, its checksum, the content, its checksum; all little-endian."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, _masked_checksum(length), content, _masked_checksum(content)))


def prepare_directory(directory: Path) -> Path:
    check_can_be_directory("log_dir", directory, writable=True)
    with naming(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory.resolve()


def check_max_file_size(value: Any) -> int | None:
    """Returns the limit in bytes, or None for no limit, which a negative number means as well, with a warning."""
    if value is None:
        return None
    size = check_int("max_file_size", value)
    if size == 0:
        raise wrong_value("max_file_size", "a positive number of bytes, or None for no limit", value)
    if size < 0:
        warnings.warn(f"max_file_size is {size}, which sets no limit; write None for that.", UserWarning, stacklevel=3)
        return None
    return size


def check_export_options(value: Any) -> dict[str, str | None]:
    given = {} if value is None else check_keys("export_options", value, ("tensor_format",))
    if given.get("tensor_format") is not None:
        check_choice("export_options['tensor_format']", given["tensor_format"], ("npy",))
    return given


def check_name_part(name: str, value: str) -> str:
    if not _NAME_PART.fullmatch(check_instance(name, value, str, "a str")):
        raise wrong_value(name, "ASCII letters, digits, '_' and, not in front, '.'; not empty", value)
    return value


class SummaryWriteError(LandscapeError, OSError):
    """A summary could not be written, for example because the disk is full."""


class SummaryWriter(WritingThread):
    """Writes steps on a thread of its own, which begins with the first step and sleeps while there is nothing to do."""

    def __init__(self, files: EventFiles, label: str) -> None:
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


class _WholeWrites:
    """A new file without a buffer of its own: a killed process loses nothing, a forked one repeats nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.OPEN_FLAGS, 0o600)
        self.size = 0

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError:
            # Half a record would hide those of a later writer from readers.
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        self.size += len(content)

    def flush(self) -> None:
        system.sync(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def _masked_checksum(content: bytes) -> bytes:
    # An export for MindInsight needs no TensorBoard. Pure Python holds the interpreter's lock at 4 MB/s, which would
    # stall a training at each large tensor; the library makes 8 GB/s.
    try:
        import google_crc32c

        checksum = int(google_crc32c.value(content))
    except ImportError:
        table, checksum = _remainders(), 0xFFFFFFFF
        for byte in content:
            checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
        checksum ^= 0xFFFFFFFF
    # A record may hold records: the mask keeps a checksum from covering its own kind.
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.cache
def _remainders() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table
