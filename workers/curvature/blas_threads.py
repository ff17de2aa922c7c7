"""One thread for NumPy's linear algebra, while a framework computes with all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets OpenBLAS compute in one thread meanwhile; also a decorator."""
    # Its threads go on spinning after each product of vectors, and take the cores from the framework, which needs them
    # for the next derivative: that made searches on two cores twice as slow.
    loaded = ThreadpoolController()
    # A framework may bring an OpenBLAS of its own, whose threads it needs.
    chosen = [
        library.filepath
        for library in loaded.lib_controllers
        if library.internal_api == "openblas" and "torch" not in Path(library.filepath).parts
    ]
    with loaded.select(filepath=chosen).limit(limits=1):
        yield
