"""Phase 1, inside training: callbacks, and the run directory that they leave behind."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callbacks.callback import Callback as Callback
    from .callbacks.callback import RunContext as RunContext
    from .callbacks.callback_manager import CallbackManager as CallbackManager
    from .callbacks.function_callbacks import LambdaCallback as LambdaCallback
    from .callbacks.function_callbacks import LearningRateScheduler as LearningRateScheduler
    from .callbacks.history import History as History
    from .callbacks.loss_monitor import LossMonitor as LossMonitor
    from .callbacks.time_monitor import TimeMonitor as TimeMonitor
    from .errors import CheckpointError as CheckpointError
    from .errors import CheckpointWriteError as CheckpointWriteError
    from .errors import LandscapeError as LandscapeError
    from .errors import RunDirectoryError as RunDirectoryError
    from .model.model import Model as Model
    from .model_checkpoint.config import CheckpointConfig as CheckpointConfig
    from .model_checkpoint.loading import Checkpoint as Checkpoint
    from .model_checkpoint.loading import latest_checkpoint as latest_checkpoint
    from .model_checkpoint.loading import load_checkpoint as load_checkpoint
    from .model_checkpoint.model_checkpoint import ModelCheckpoint as ModelCheckpoint
    from .networks.weight_space import describe_arrays as describe_arrays
    from .recording.summary_collector import SummaryCollector as SummaryCollector
    from .run_directory.directory import RunDirectory as RunDirectory
    from .run_directory.importing import import_checkpoints as import_checkpoints
    from .run_directory.settings import LandscapeSettings as LandscapeSettings
    from .summary.lineage import EvalLineage as EvalLineage
    from .summary.lineage import TrainLineage as TrainLineage
    from .summary.record import SummaryRecord as SummaryRecord
    from .summary.writer import SummaryWriteError as SummaryWriteError

# Importing a name here must not import a framework that another name needs.
_HOMES = {
    "Callback": "callbacks.callback",
    "RunContext": "callbacks.callback",
    "CallbackManager": "callbacks.callback_manager",
    "CheckpointConfig": "model_checkpoint.config",
    "import_checkpoints": "run_directory.importing",
    "Checkpoint": "model_checkpoint.loading",
    "latest_checkpoint": "model_checkpoint.loading",
    "load_checkpoint": "model_checkpoint.loading",
    "CheckpointError": "errors",
    "CheckpointWriteError": "errors",
    "LandscapeError": "errors",
    "RunDirectoryError": "errors",
    "History": "callbacks.history",
    "LambdaCallback": "callbacks.function_callbacks",
    "LearningRateScheduler": "callbacks.function_callbacks",
    "EvalLineage": "summary.lineage",
    "TrainLineage": "summary.lineage",
    "LossMonitor": "callbacks.loss_monitor",
    "Model": "model.model",
    "ModelCheckpoint": "model_checkpoint.model_checkpoint",
    "describe_arrays": "networks.weight_space",
    "RunDirectory": "run_directory.directory",
    "LandscapeSettings": "run_directory.settings",
    "SummaryCollector": "recording.summary_collector",
    "SummaryRecord": "summary.record",
    "SummaryWriteError": "summary.writer",
    "TimeMonitor": "callbacks.time_monitor",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
