"""The file of an experiment under its lock, with what it holds before anything is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from workers.measurement_plan import MeasurementPlan

from ..errors import LandscapeNotFoundError
from .identity import REMEDY, check_identity
from .lock import clean_temporaries, lock_landscape
from .record import Record
from .record_file import read_record
from .whole_file import check_replaceable

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class StoredRecord(Generic[R]):
    """A file that an experiment goes on with.

    Attributes:
        path: of the file; None keeps the experiment in memory.
        record: what the file holds; None where there is no file, or it is replaced.
    """

    path: AnyPath | None
    record: R | None

    @property
    def plan(self) -> MeasurementPlan | None:
        """The plan that goes on with the same bits, or None; a LandscapeError where this version cannot use it."""
        plan = None if self.record is None else self.record.attributes.get("measurement_plan")
        return None if plan is None or self.path is None else continued_plan(plan, self.path)

    def joined(self, fresh: R) -> R:
        """Returns ``fresh`` with what the file has; a LandscapeIdentityError if that is of another experiment."""
        fresh.path = self.path
        if self.record is None or self.path is None:
            return fresh
        before, now = (record.attributes.get("identity", {}) for record in (self.record, fresh))
        check_identity(before, now, self.path, kind=fresh.schema.kind)
        joined = fresh.joined(self.record)
        joined.path = self.path
        return joined


@contextlib.contextmanager
def open_record(
    kind: type[R], path: AnyPath | None, *, overwrite: bool = False, rehearsal: bool = False
) -> Iterator[StoredRecord[R]]:
    """Gives a file's record, none with ``overwrite``, and locks it, unless a ``rehearsal`` writes nothing."""
    with contextlib.ExitStack() as stack:
        record = None
        if path is not None and not rehearsal:
            stack.enter_context(lock_landscape(path, kind.schema.kind))
            clean_temporaries(path)
        if path is not None and overwrite:
            check_replaceable(path, kind.schema.kind)
        elif path is not None:
            with contextlib.suppress(LandscapeNotFoundError):
                record = read_record(kind, path)
        yield StoredRecord(path, record)


def continued_plan(stored: Mapping[str, Any], path: AnyPath) -> MeasurementPlan:
    """Returns the plan of a file that is continued; a ``LandscapeError`` says that this version cannot use it."""
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise LandscapeError(f"{path} was measured with a plan that cannot be used here ({error}). {REMEDY}") from error
