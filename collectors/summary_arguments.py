"""The arguments of a summary record, checked."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

from .validation import check_choice, check_int, check_keys, wrong_type, wrong_value

_REMEDY = "choose another or change its permissions."
_NAME_PART = re.compile(r"[0-9a-zA-Z_][0-9a-zA-Z_.]*")


def check_max_file_size(value: Any) -> int | None:
    """Returns the limit in bytes, or None for no limit.

    Raises:
        TypeError: it is neither an int nor None.
        ValueError: it is 0; a negative number means no limit, as in the reference, with a warning.
    """
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
    """Returns the options; None means none.

    Raises:
        TypeError: it is no dictionary with str keys, or the format is no str.
        ValueError: a key or the format is unknown.
    """
    if value is None:
        return {}
    given = check_keys("export_options", value, ("tensor_format",))
    if given.get("tensor_format") is not None:
        check_choice("export_options['tensor_format']", given["tensor_format"], ("npy",))
    return given


def check_name_part(name: str, value: Any) -> str:
    """Returns what file names begin or end with.

    Raises:
        TypeError: it is no str.
        ValueError: it is empty or has other characters than ASCII letters, digits, ``_`` and ``.``.
    """
    if not isinstance(value, str):
        raise wrong_type(name, "a str", value)
    if not _NAME_PART.fullmatch(value):
        raise wrong_value(name, "ASCII letters, digits, '_' and, not in front, '.'; not empty", value)
    return value


def prepare_directory(directory: Path) -> Path:
    """Creates a directory where it is missing; returns its real path.

    Raises:
        NotADirectoryError: it is a file, or lies below one.
        PermissionError: it may not be created or written.
    """
    if _is_file(directory):
        raise NotADirectoryError(f"log_dir must be a directory, but {directory} is a file; choose another.")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"log_dir {directory} lies below something that is a file; choose another.") from error
    except PermissionError as error:
        raise PermissionError(f"log_dir {directory} may not be created; {_REMEDY}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(f"log_dir {directory} may not be written; {_REMEDY}")
    return directory.resolve()


def _is_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except PermissionError as error:
        raise PermissionError(f"log_dir {path} may not be looked into; {_REMEDY}") from error
