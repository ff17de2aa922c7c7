"""The table of calls, each a name, the packages that it needs and a function without arguments; it only grows."""

import curves
import frameworks
import grids

TORCH = {name: ((), function) for name, function in {**grids.CALLS, **curves.CALLS}.items()}
CALLS = {**TORCH, **frameworks.CALLS}
