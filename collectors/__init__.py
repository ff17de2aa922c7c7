"""Phase 1, inside training: callbacks, and the run directory that they leave behind."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callback import Callback as Callback
    from .callback_manager import CallbackManager as CallbackManager
    from .callback import RunContext as RunContext
    from .checkpoint_import import import_checkpoints as import_checkpoints
    from .errors import CheckpointError as CheckpointError
    from .errors import CheckpointWriteError as CheckpointWriteError
    from .errors import LandscapeError as LandscapeError
    from .errors import RunDirectoryError as RunDirectoryError
    from .model import Model as Model
    from .run_directory import RunDirectory as RunDirectory
    from .settings import LandscapeSettings as LandscapeSettings
    from .summary_collector import SummaryCollector as SummaryCollector

# Importing a name here must not import a framework that another name needs.
_HOMES = {
    "Callback": "callback",
    "CallbackManager": "callback_manager",
    "RunContext": "callback",
    "CheckpointError": "errors",
    "CheckpointWriteError": "errors",
    "LandscapeError": "errors",
    "RunDirectoryError": "errors",
    "import_checkpoints": "checkpoint_import",
    "Model": "model",
    "RunDirectory": "run_directory",
    "LandscapeSettings": "settings",
    "SummaryCollector": "summary_collector",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
