"""The code that is sent to a cluster: our packages, and the modules next to the one that defines callback_fn."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..users_code import OUR_PACKAGES, is_installed


def code_of(callback_fn: Callable[[], Any]) -> dict[str, Any]:
    """Returns the ``runtime_env`` with which Ray sends the code to nodes that do not have it."""
    # Our packages in this process's version, and the modules and packages beside callback_fn's. Data files elsewhere
    # and what is installed in the Python environment are not sent: every node needs its own.
    modules = [str(Path(__file__).parents[2] / name) for name in OUR_PACKAGES]
    for folder in _folders(callback_fn):
        modules += [str(path) for path in _importable(folder) if path.stem not in OUR_PACKAGES]
    return {"py_modules": list(dict.fromkeys(modules)), "excludes": ["**/__pycache__"]}


def _folders(callback_fn: Callable[[], Any]) -> list[Path]:
    """Returns the folders of the user's own modules."""
    function = callback_fn
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    name = str(getattr(function, "__module__", None) or type(function).__module__)
    folders = [_folder_of(name.partition(".")[0]), _folder_of_script()]
    return list(dict.fromkeys(folder for folder in folders if folder is not None and not is_installed(folder)))


def _folder_of(name: str) -> Path | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    path = Path(file).absolute()
    return path.parents[1] if hasattr(module, "__path__") else path.parent


def _folder_of_script() -> Path | None:
    # A notebook and `python -c` have no file.
    return _folder_of("__main__") or Path.cwd()


def _importable(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
    return [
        folder / name
        for name in names
        if (name.endswith(".py") and (folder / name).is_file())
        or (name.isidentifier() and (folder / name / "__init__.py").is_file())
    ]
