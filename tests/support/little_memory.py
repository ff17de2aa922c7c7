"""A bound on what a call may take, so that a small file that claims gigabytes is found out on any machine."""

import contextlib
import tracemalloc


@contextlib.contextmanager
def little_memory(most):
    """Fails if Python and NumPy ask for more than so many bytes at a time; they count even if nobody touches them."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak} bytes were asked for, more than {most}"
