"""Phase 1, inside training: callbacks, and the run directory that they leave behind."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callback import Callback as Callback
    from .callback import RunContext as RunContext
    from .callback_manager import CallbackManager as CallbackManager
    from .checkpoint_config import CheckpointConfig as CheckpointConfig
    from .checkpoint_import import import_checkpoints as import_checkpoints
    from .checkpoint_loading import Checkpoint as Checkpoint
    from .checkpoint_loading import latest_checkpoint as latest_checkpoint
    from .checkpoint_loading import load_checkpoint as load_checkpoint
    from .errors import CheckpointError as CheckpointError
    from .errors import CheckpointWriteError as CheckpointWriteError
    from .errors import LandscapeError as LandscapeError
    from .errors import RunDirectoryError as RunDirectoryError
    from .history import History as History
    from .lambda_callback import LambdaCallback as LambdaCallback
    from .learning_rate_scheduler import LearningRateScheduler as LearningRateScheduler
    from .lineage import EvalLineage as EvalLineage
    from .lineage import TrainLineage as TrainLineage
    from .loss_monitor import LossMonitor as LossMonitor
    from .model import Model as Model
    from .model_checkpoint import ModelCheckpoint as ModelCheckpoint
    from .network_state import describe_arrays as describe_arrays
    from .run_directory import RunDirectory as RunDirectory
    from .settings import LandscapeSettings as LandscapeSettings
    from .summary_collector import SummaryCollector as SummaryCollector
    from .summary_record import SummaryRecord as SummaryRecord
    from .summary_writer import SummaryWriteError as SummaryWriteError
    from .time_monitor import TimeMonitor as TimeMonitor

# Importing a name here must not import a framework that another name needs.
_HOMES = {
    "Callback": "callback",
    "RunContext": "callback",
    "CallbackManager": "callback_manager",
    "CheckpointConfig": "checkpoint_config",
    "import_checkpoints": "checkpoint_import",
    "Checkpoint": "checkpoint_loading",
    "latest_checkpoint": "checkpoint_loading",
    "load_checkpoint": "checkpoint_loading",
    "CheckpointError": "errors",
    "CheckpointWriteError": "errors",
    "LandscapeError": "errors",
    "RunDirectoryError": "errors",
    "History": "history",
    "LambdaCallback": "lambda_callback",
    "LearningRateScheduler": "learning_rate_scheduler",
    "EvalLineage": "lineage",
    "TrainLineage": "lineage",
    "LossMonitor": "loss_monitor",
    "Model": "model",
    "ModelCheckpoint": "model_checkpoint",
    "describe_arrays": "network_state",
    "RunDirectory": "run_directory",
    "LandscapeSettings": "settings",
    "SummaryCollector": "summary_collector",
    "SummaryRecord": "summary_record",
    "SummaryWriteError": "summary_writer",
    "TimeMonitor": "time_monitor",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
