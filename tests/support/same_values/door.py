"""Every public name, wherever a commit has it; and what is another call in an older one."""

from importlib import import_module

ROOMS = (
    "landscape.functions",
    "landscape",
    "landscape.planes",
    "landscape.paths.alignment",
    "landscape.paths.barrier",
    "landscape.paths.path",
)


def __getattr__(name):
    for room in ROOMS:
        try:
            return getattr(import_module(room), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(name)


def barrier_of_path(path, callback_fn, points, *, output, **options):
    """Returns the barrier along a curve."""
    if hasattr(path, "barrier"):
        return path.barrier(callback_fn, points, output=output, **options)
    from landscape import Measure

    return Measure(callback_fn, **options).barrier(path, points=points, output=output)
