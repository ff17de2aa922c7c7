"""The table of calls, each a name, the packages that it needs and a function without arguments; it only grows."""

from collections.abc import Callable
from typing import Any

import curves
import frameworks
import grids

TORCH = {name: ((), function) for name, function in {**grids.CALLS, **curves.CALLS}.items()}
CALLS: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {**TORCH, **frameworks.CALLS}
