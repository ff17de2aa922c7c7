"""Notices when a user's own file hides one of our packages, whose names are common words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_HOME = Path(__file__).resolve().parent.parent
_NEIGHBOURS = ("collectors", "workers")


def check_neighbours() -> None:
    """Raises an ImportError where a user's file hides ``collectors`` or ``workers`` that were installed beside this."""
    for name in _NEIGHBOURS:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None:
            raise ImportError(f"the package {name!r} of summary-landscape is missing; install summary-landscape again.")
        # To a cluster Ray takes each package in a folder of its own.
        was_sent = all(folder.name.startswith("_ray_pkg_") for folder in (Path(origin).parents[1], _HOME))
        if Path(origin).resolve() != _HOME / name / "__init__.py" and not was_sent:
            raise ImportError(
                f"{origin} hides the package {name!r} of summary-landscape, because its folder comes first on "
                "Python's search path. Rename that file, or run from another folder."
            )


def check_folder(folder: Path) -> None:
    """Raises an ImportError where a folder that is to be searched for modules hides one of our packages."""
    for name in (*_NEIGHBOURS, "landscape"):
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists() and path.resolve() != _HOME / name / "__init__.py":
                raise ImportError(
                    f"{path} hides the package {name!r} of summary-landscape; rename that file, or run from another "
                    "folder."
                )
