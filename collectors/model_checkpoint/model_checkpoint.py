"""ModelCheckpoint: saves checkpoints while a network trains, from which training can go on bit by bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from ..callbacks.callback import BuiltInCallback, RunContext, in_evaluation, parameters_of
from ..callbacks.callback_manager import has_state
from ..process_rank import is_first_rank
from ..validation import check_instance, wrong_type
from .checkpoint_file import check_directory
from .config import CheckpointConfig
from .resuming import TrainingContext
from .run import CheckpointRun, TextFromParameters, check_prefix, place_before


class ModelCheckpoint(BuiltInCallback):
    """Saves ``<prefix>-<epoch>_<step of the epoch>.safetensors`` as a ``CheckpointConfig`` asks for.

    A file is one safetensors file: weights under their names, the rest of the training's state under names that
    begin with ``checkpoint/``, and JSON in its metadata; nothing is pickled. It holds the state after all
    callbacks have done their work of that step. The last step is always saved, and so is a step after which a
    callback asks to stop. Go on with ``Model.train(..., resume_from=path)``.

    Only files that the run wrote are ever deleted, and only when the file that replaces them is safely on disk.
    Where files of the prefix are there already, or a training that began earlier has it, the run's prefix becomes
    ``prefix_1``, ``prefix_2``, ...; a run that is resumed goes on with its prefix and its files, unless there are later
    ones, or files of a later run. In a distributed training rank 0 writes. In evaluations nothing happens.

    Args:
        prefix: the beginning of the files' names, without "/"; or a function of ``cb_params`` that returns the
            whole name without its suffix, and then an existing file is replaced.
        directory: where to write; it is created when training begins, for the user alone. None is the present
            working directory. Or a function of ``cb_params`` that returns it.
        config: the policy; None is ``CheckpointConfig()``.
        stateful: by name, further objects with ``state_dict`` and ``load_state_dict`` that a resumed training
            needs, such as a learning rate scheduler: ``{"scheduler": scheduler}``. Callbacks that have both
            methods need not be named.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        NotADirectoryError: the directory is a file.
        PermissionError: the directory cannot be written.
    """

    def __init__(
        self,
        prefix: str | TextFromParameters = "CKP",
        directory: str | os.PathLike[str] | TextFromParameters | None = None,
        config: CheckpointConfig | None = None,
        *,
        stateful: Mapping[str, Any] | None = None,
    ) -> None:
        self._prefix = prefix if callable(prefix) else check_prefix(prefix)
        self._directory: Path | TextFromParameters = (
            directory if callable(directory) else check_directory(Path.cwd() if directory is None else directory)
        )
        config = CheckpointConfig() if config is None else config
        self._config = check_instance("config", config, CheckpointConfig, "a CheckpointConfig or None")
        self._stateful = _check_stateful(stateful)
        self._latest = ""
        self._run: CheckpointRun | None = None
        self._entered: list[bool] = []  # of each context that is open, whether a run was open before

    @property
    def latest_ckpt_file_name(self) -> str:
        """The path of the last file that is safely on disk; empty before the first."""
        return self._latest

    @property
    def state_is_needed(self) -> bool:
        """Whether a training that is resumed without this callback would lose something."""
        return bool(self._stateful)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run goes on with: the prefix, the run's files, and the states of ``stateful``."""
        run = self._run
        return {
            "run": None if run is None else {**run.state_dict(), "beside": sorted(self._beside(run.params))},
            "stateful": {name: item.state_dict() for name, item in self._stateful.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with what ``state_dict`` returned.

        Raises:
            ValueError: the names of ``stateful`` are others.
        """
        names = sorted(state["stateful"])
        if names != sorted(self._stateful):
            raise ValueError(
                f"stateful must have the names {names}, as in the training that is resumed, but has "
                f"{sorted(self._stateful)}."
            )
        for name, item in self._stateful.items():
            item.load_state_dict(state["stateful"][name])
        if self._run is not None and state["run"] is not None:
            self._run.load_state_dict(state["run"])

    def begin(self, run_context: RunContext) -> None:
        if not in_evaluation(run_context):
            self._begin(run_context, int(parameters_of(run_context).get("cur_step_num", 0)))

    def step_end(self, run_context: RunContext) -> None:
        """In a loop of one's own that did not call ``begin``, the run begins with this step."""
        run = self._present_run(run_context)
        if run is not None:
            run.check()
            _after_hooks(run_context, lambda: run.end_step(run_context))

    def end(self, run_context: RunContext) -> None:
        run = self._present_run(run_context)
        if run is not None:
            _after_hooks(run_context, lambda: self._end(run, run_context))

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        if self._run is not None and self._config.exception_save and not in_evaluation(run_context):
            is_saved = self._run.save_exception(run_context)
            if is_saved and isinstance(run_context, TrainingContext) and run_context.update.is_moving:
                error.add_note(
                    f"{self._latest} was saved in the middle of an optimizer step, which may have moved some of the "
                    "parameters: a training that goes on from it makes that step again. From an earlier checkpoint it "
                    "goes on exactly."
                )

    def __enter__(self) -> Self:
        self._entered.append(self._run is not None)
        return self

    def __exit__(self, *_: object) -> None:
        # An evaluation inside a training, which enters its callbacks too, does not end that.
        if not self._entered.pop():
            self._close()

    def _begin(self, run_context: RunContext, steps_done: int) -> None:
        self._close()
        params = parameters_of(run_context)
        if is_first_rank():
            start = place_before(run_context)
            self._run = CheckpointRun(
                self._config,
                self._prefix,
                self._directory,
                params,
                steps_done,
                start,
                self._beside(params),
                self._note_written,
            )

    def _beside(self, params: Mapping[str, Any]) -> set[str]:
        """Returns the prefixes under which other ModelCheckpoints of the same training write to the directory."""
        others = [item for item in params.get("list_callback") or () if isinstance(item, ModelCheckpoint)]
        runs = [item._run for item in others if item is not self and item._directory == self._directory]
        return {run.prefix for run in runs if run is not None}

    def _present_run(self, run_context: RunContext) -> CheckpointRun | None:
        """Returns the run, which begins now where nobody began it; None where nothing is saved."""
        if in_evaluation(run_context):
            return None
        if self._run is None:
            self._begin(run_context, max(int(parameters_of(run_context)["cur_step_num"]) - 1, 0))
        return self._run

    def _end(self, run: CheckpointRun, run_context: RunContext) -> None:
        run.end(run_context)
        if not self._entered:
            self._close()

    def _close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _note_written(self, path: str) -> None:
        self._latest = path


def _after_hooks(run_context: RunContext, function: Callable[[], None]) -> None:
    if isinstance(run_context, TrainingContext):
        run_context.after_hooks(function)
    else:
        function()


def _check_stateful(stateful: Any) -> dict[str, Any]:
    if stateful is None:
        return {}
    check_instance("stateful", stateful, Mapping, "a dict of objects with state_dict and load_state_dict, or None")
    for name, item in stateful.items():
        check_instance("a key of stateful", name, str, "a str")
        if isinstance(item, type) or not has_state(item):
            raise wrong_type(f"stateful[{name!r}]", "an object with state_dict and load_state_dict", item)
    return dict(stateful)
