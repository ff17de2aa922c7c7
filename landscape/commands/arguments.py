"""What several commands read from their options."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..shadowing import check_folder


def load_function(text: str) -> Callable[[], Any]:
    """Returns the function that ``module:function`` names; the working directory is searched first."""
    module_name, separator, function_name = text.partition(":")
    if not (module_name and separator and function_name):
        raise ValueError(f"--function must be module:function, such as my_training:callback_fn, but got {text!r}.")
    folder = Path.cwd()
    check_folder(folder)
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise ValueError(
            f"--function names the module {module_name!r}, which is neither in {folder} nor installed."
        ) from error
    try:
        function = getattr(module, function_name)
    except AttributeError as error:
        raise ValueError(f"--function names {function_name!r}, which {module.__file__} does not define.") from error
    return function  # type: ignore[no-any-return]


def integers(option: str, text: str) -> list[int]:
    """Returns the whole numbers of a text such as ``0,1``."""
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"{option} must be whole numbers separated by commas, such as 0,1, but got {text!r}."
        ) from error
