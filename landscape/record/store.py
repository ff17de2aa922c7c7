"""What a file holds of an experiment before it is measured."""

from __future__ import annotations

from typing import TypeVar

from collectors.files.places import AnyPath

from ..errors import LandscapeNotFoundError
from ..file.whole_file import check_replaceable
from .identity import check_identity
from .record import Record
from .record_file import read_record

R = TypeVar("R", bound=Record)


def continued(path: AnyPath | None, fresh: R, *, overwrite: bool) -> tuple[R, bool]:
    """Returns a record with what its file holds already, and whether a file of this identity is there.

    Args:
        path: the file, which need not exist; None for what is in memory only.
        fresh: the record with nothing measured, and its identity.
        overwrite: whether what is there does not count.

    Raises:
        LandscapeIdentityError: the file holds another experiment.
        LandscapeError: the file cannot be read, or not be replaced; the subclass says why.
    """
    kind = fresh.schema.kind
    if path is None:
        return fresh, False
    if overwrite:
        check_replaceable(path, kind)
        return fresh, False
    try:
        stored = read_record(type(fresh), path)
    except LandscapeNotFoundError:
        return fresh, False
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path, kind=kind)
    return fresh.joined(stored), True
