"""What may be written over: no input of the call, and no file that holds something else than what is written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collectors.errors import LandscapeError, NotReplacedError
from collectors.files import local_files
from collectors.files.file_kinds import ENOUGH_BYTES
from collectors.files.places import AnyPath, check_directory, is_url
from collectors.files.remote_path import RemotePath

from .errors import LandscapeIdentityError, LandscapeWriteError

# How the header of a safetensors file of ours begins, after the eight bytes of its length.
_METADATA = b'{"__metadata__":{'
_OURS = b'"format":"summary-landscape'


def check_no_input(name: str, target: AnyPath, inputs: Iterable[object]) -> None:
    """Raises LandscapeWriteError where a file to write is, by any name, an input; those in memory are no files."""
    for item in inputs:
        place = _place_of(item)
        if place is not None and _are_one(target, place):
            is_other = isinstance(target, Path) and isinstance(place, Path) and target.absolute() != place.absolute()
            called = f" (given as {place})" if is_other else ""
            raise LandscapeWriteError(
                f"{name} must not be one of the inputs, but {target} is one{called}. It was left as it is. Give "
                "another name."
            )


def check_replaceable_tensors(target: AnyPath, word: str, form: str | None) -> None:
    """Raises LandscapeWriteError where a file holds something else than tensors of ``form``, None for mere weights."""
    begins = first_bytes(target, ENOUGH_BYTES)
    if not begins:
        return
    if form is None:
        fits = begins[8:9] == b"{" and _OURS not in begins
    else:
        # One that broke off before it says what it is holds no tensor.
        ends_early = len(begins) < len(_METADATA) + 8 + 64 and begins[8:].startswith(_METADATA)
        fits = f'"format":"{form}"'.encode() in begins or ends_early
    if not fits:
        raise not_replaced(target, word)


def not_replaced(target: AnyPath, word: str) -> LandscapeWriteError:
    return LandscapeWriteError(
        f"{target} is no {word} file and was left as it is: only such a file is replaced. Remove it, or give another "
        "name."
    )


def already_there(target: AnyPath) -> LandscapeWriteError:
    return LandscapeWriteError(
        f"{target} exists and was left as it is. Pass overwrite=True to replace it, or give another name."
    )


def holds_another(target: AnyPath, what: str) -> LandscapeIdentityError:
    return LandscapeIdentityError(
        f"{target} holds {what}; it was left as it is. Move it elsewhere, choose another output, or pass "
        "overwrite=True to replace it."
    )


def first_bytes(target: AnyPath, count: int) -> bytes:
    """Returns the first bytes of a file, none if it is missing; a LandscapeWriteError if it is not to be replaced."""
    try:
        if isinstance(target, RemotePath):
            return target.read_bytes(0, count)
        return local_files.first_bytes(target, count)
    except FileNotFoundError:
        return b""
    except NotReplacedError as error:
        raise LandscapeWriteError(str(error)) from error
    except OSError as error:
        raise LandscapeWriteError(
            f"{target} cannot be read, so that nobody knows whether it may be replaced: {error.strerror}. It was left "
            "as it is. Check the address and your right to read there, or give another name."
        ) from error


def _place_of(item: Any) -> AnyPath | None:
    if isinstance(item, RemotePath):
        return item
    given = item
    if not isinstance(item, str | os.PathLike):
        # Readers of weights are called by the whole paths of their files, and "a" or "weights" in memory.
        given = getattr(item, "label", "")
        if not (is_url(given) or Path(given).is_absolute()):
            return None
    if not is_url(given):
        return Path(given)
    try:
        return check_directory("inputs", given)
    except (LandscapeError, ValueError, ImportError):
        return None  # whoever reads it says what is wrong


def _are_one(target: AnyPath, other: AnyPath) -> bool:
    if isinstance(target, Path) and isinstance(other, Path):
        try:
            return target.samefile(other)
        except (OSError, ValueError):
            return False  # one of them is not there
    return type(target) is type(other) and str(target) == str(other)
