"""CheckpointRun: what a ModelCheckpoint does within one run of a training."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..callbacks.callback import RunContext
from ..errors import CheckpointWriteError, reason_of
from ..files import system
from ..files.background import WritingThread
from ..files.local_files import naming, remove_stale_temporaries
from ..files.locks import WITHOUT_LOCKS, LockHeldError, ProcessLock, WriteLock
from ..networks.readers import read_network
from ..validation import check_instance, wrong_value
from .archive import Archive, storable_extra_states, write_archive
from .checkpoint_file import CHECKPOINT_NAME, SUFFIX, check_directory, make_directory, prefix_of
from .config import CheckpointConfig
from .resuming import Moment, TrainingContext
from .writer import Retention

TextFromParameters = Callable[[Any], str]


class CheckpointRun:
    """Saves the checkpoints of one run, one after the other; calls ``written`` with the path of each that is there."""

    def __init__(
        self,
        config: CheckpointConfig,
        prefix: str | TextFromParameters,
        directory: Path | TextFromParameters,
        params: Any,
        steps_done: int,
        start: tuple[int, int],
        used_prefixes: Collection[str],
        written: Callable[[str], None],
    ) -> None:
        self._config = config
        self._keep([])
        self._jobs = WritingThread("checkpoint-writer")
        self._pending: tuple[Path, int] | None = None
        self._failure: Exception | None = None
        self._given_prefix, self._directory, self.params, self._notify = prefix, directory, params, written
        self._first_step = self._last_step = steps_done
        self._start, self._used_prefixes = start, used_prefixes
        self._prefixes: dict[Any, str] = {}  # of each folder that the run writes to
        self._claim = WriteLock()  # on the last of these prefixes, until the run ends
        self._last_time = time.monotonic()
        if isinstance(directory, Path):
            make_directory(directory)
            remove_stale_temporaries(directory, CHECKPOINT_NAME)
            if isinstance(prefix, str):
                self._prefix_in(directory, prefix)
        self._current: Path | None = None
        self._saved_with_unused_gradients = False
        self._at_step_end: Moment | None = None

    @property
    def prefix(self) -> str:
        given = self._given_prefix
        return self._prefixes.get(self._directory, given if isinstance(given, str) else "")

    def state_dict(self) -> dict[str, Any]:
        files = self._retention.files + ([] if self._current is None else [self._current])
        return {"directory": str(self._directory), "prefix": self.prefix, "files": [path.name for path in files]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with an earlier run's prefix and files, where they are in the same directory and none is later."""
        folder, given, prefix = self._directory, self._given_prefix, state["prefix"]
        if not isinstance(folder, Path) or not isinstance(given, str) or state["directory"] != str(folder):
            return
        number = _run_number(given, prefix)
        if number is None:
            return
        with naming(folder):
            found = [match for file in folder.iterdir() if (match := CHECKPOINT_NAME.fullmatch(file.name))]
            is_continued = any(match[1] == prefix and (int(match[2]), int(match[3])) > self._start for match in found)
            others = {match[1] for match in found}.difference(state.get("beside", ()))
            if is_continued or any((_run_number(given, name) or 0) > number for name in others):
                return
            claim = _claim_of(folder, prefix)
        if claim is None:
            return
        self._claim.release()
        self._prefixes[folder], self._claim = prefix, claim
        self.wait()
        # A manipulated checkpoint must not make us delete files of others.
        names = [name for name in state["files"] if Path(name).name == name and prefix_of(name) == prefix]
        self._keep(folder / name for name in names if (folder / name).is_file())

    def end_step(self, run_context: RunContext) -> None:
        step, _, _ = _place(run_context)
        if self._is_due(step) or run_context.get_stop_requested():
            self._save(run_context)
        if self._config.exception_save and isinstance(run_context, TrainingContext):
            self._at_step_end = run_context.capture_moment()

    def end(self, run_context: RunContext) -> None:
        """Saves the last step unless it is saved already, and waits until everything is on disk."""
        step, _, _ = _place(run_context)
        # The end of an epoch uses gradients that are left over, after its last step was saved.
        used = self._saved_with_unused_gradients and not getattr(run_context, "has_unused_gradients", False)
        if step > self._last_step or used:
            self._save(run_context)
        self.wait()

    def save_exception(self, run_context: RunContext) -> bool:
        """Saves what an error left, and returns whether it did: nothing when no step was done."""
        step, _, _ = _place(run_context)
        if step <= self._first_step:
            return False
        # What an unfinished step has drawn and differentiated belongs to no state that could be resumed.
        in_epoch = isinstance(run_context, TrainingContext) and not run_context.epoch_complete
        moment = self._at_step_end
        self._save(run_context, "_breakpoint", moment if in_epoch and moment and moment.step == step else None)
        self.wait()
        return True

    def check(self) -> None:
        """Takes note of a file that has been written; raises CheckpointWriteError if it could not be."""
        if self._jobs.is_idle:
            self.wait()

    def wait(self) -> None:
        if self._pending is None:
            return
        self._jobs.wait()
        (path, step), self._pending = self._pending, None
        error, self._failure = self._failure, None
        if error is not None:
            raise CheckpointWriteError(
                f"the checkpoint {path} could not be written: {reason_of(error)}. Training stops, because it could "
                "not be resumed from here; free some space or choose another directory, then continue from the latest "
                "checkpoint."
            ) from error
        self.params["last_save_ckpt_step"], self.params["latest_ckpt_file"] = step, str(path)
        self._notify(str(path))

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._jobs.close()
            self._claim.release()

    def _keep(self, files: Iterable[Path]) -> None:
        """Begins with files that exist; the surplus of these and later ones is deleted."""
        self._retention = Retention(self._config.keep_checkpoint_max, self._config.keep_checkpoint_per_n_minutes, files)

    def _is_due(self, step: int) -> bool:
        if self._config.save_checkpoint_steps is not None:
            return step >= self._last_step + self._config.save_checkpoint_steps
        seconds = self._config.save_checkpoint_seconds
        return seconds is not None and time.monotonic() - self._last_time > seconds

    def _save(self, run_context: RunContext, ending: str = "", moment: Moment | None = None) -> None:
        self.wait()
        params = run_context.original_args()
        step, epoch, step_of_epoch = _place(run_context)
        path = self._path(params, f"{epoch}_{step_of_epoch}", ending)
        saved = self._config.saved_network
        network = params["network"] if saved is None else saved
        state = None
        if self._config.training_state and isinstance(run_context, TrainingContext):
            from ..networks.torch_network import unwrap

            self._current = None if ending else path
            state = run_context.capture(moment)
            self._current = None
            if saved is not None and unwrap(saved) is not unwrap(params["network"]):
                trained = params["network"]
                state = dataclasses.replace(state, network={**read_network(trained), **storable_extra_states(trained)})
        info = self._config.info(epoch, step)
        archive = Archive.pack(read_network(network), info, state, storable_extra_states(network))
        self._last_step, self._last_time = step, time.monotonic()
        self._saved_with_unused_gradients = getattr(run_context, "has_unused_gradients", False)
        # What an exception left is never deleted.
        job = functools.partial(self._replace, path, archive, None if ending else self._retention)
        if self._config.async_save:
            self._jobs.submit(job)
        else:
            job()
        self._pending = path, step
        self.check()

    def _replace(self, path: Path, archive: Archive, retention: Retention | None) -> None:
        try:
            write_archive(path, archive, self._config.enc_key, self._config.enc_mode)
            for file in retention.add(path, time.monotonic()) if retention is not None else ():
                file.unlink(missing_ok=True)
        except Exception as error:
            # Kept rather than raised: the state that the error leaves may still be saved, which needs the thread.
            self._failure = error

    def _path(self, params: Any, place: str, ending: str) -> Path:
        folder = self._directory
        if not isinstance(folder, Path):
            folder = check_directory(folder(params))
            make_directory(folder)
        prefix = self._given_prefix
        stem = f"{self._prefix_in(folder, prefix)}-{place}" if isinstance(prefix, str) else check_prefix(prefix(params))
        return folder / f"{stem}{ending}{SUFFIX}"

    def _prefix_in(self, folder: Path, prefix: str) -> str:
        used = {*self._used_prefixes}
        with naming(folder):
            while folder not in self._prefixes:
                name = unused_prefix(folder, prefix, used)
                claim = _claim_of(folder, name)
                if claim is None:
                    used.add(name)
                elif name == unused_prefix(folder, prefix, used):
                    self._claim.release()
                    self._prefixes[folder], self._claim = name, claim
                else:
                    claim.release()  # of a training that has just ended, and left files
        return self._prefixes[folder]


def check_prefix(prefix: Any) -> str:
    name: str = check_instance("prefix", prefix, str, "a str, or a function of cb_params that returns one")
    refused = ", and none that Windows refuses" if system.refuses_name(name) else ""
    if not name.strip() or "/" in name or "\0" in name or len(os.fsencode(name)) > 180 or refused:
        expected = f"a part of a file name: not blank, without '/', at most 180 bytes{refused}"
        raise wrong_value("prefix", expected, name)
    return name


def _place(run_context: RunContext) -> tuple[int, int, int]:
    """Returns the number of steps done, the epoch, and how many of the steps are of that epoch."""
    if isinstance(run_context, TrainingContext):
        return run_context.step, run_context.epoch, run_context.epoch_steps
    params = run_context.original_args()
    step, batches = int(params["cur_step_num"]), params.get("batch_num")
    return step, int(params.get("cur_epoch_num", 0)), (step - 1) % batches + 1 if batches else step


def place_before(run_context: RunContext) -> tuple[int, int]:
    """Returns the epoch and the steps of that epoch after which a run begins, as they stand in names of files."""
    if isinstance(run_context, TrainingContext):
        epoch = run_context.epoch
        return (epoch + 1, 0) if run_context.epoch_complete else (epoch, run_context.epoch_steps)
    params = run_context.original_args()
    epochs, steps, batches = (int(params.get(name) or 0) for name in ("cur_epoch_num", "cur_step_num", "batch_num"))
    return epochs + 1, steps - epochs * batches


def _run_number(prefix: str, name: str) -> int | None:
    """Returns which run of a prefix has that name, 0 for the prefix itself; None where it is another one's."""
    match = re.fullmatch(rf"{re.escape(system.as_compared(prefix))}(?:_(\d+))?", system.as_compared(name))
    return None if match is None else int(match[1] or 0)


def unused_prefix(folder: Path, prefix: str, used_prefixes: Collection[str]) -> str:
    """Returns the prefix, or ``prefix_1``, ``prefix_2``, ..., the first behind all that files in the directory have."""
    found = filter(None, (prefix_of(file.name) for file in folder.iterdir()))
    numbers = [_run_number(prefix, name) for name in {*found, *used_prefixes}]
    latest = max((number for number in numbers if number is not None), default=None)
    return prefix if latest is None else f"{prefix}_{latest + 1}"


def _claim_of(folder: Path, prefix: str) -> WriteLock | None:
    """Keeps a prefix from trainings that begin meanwhile; None where another one has it."""
    file = folder / f".{prefix}.lock"
    try:
        return ProcessLock(file)
    except LockHeldError:
        return None
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return WriteLock()
        if isinstance(error, PermissionError) and file.exists():
            return None  # another user's
        raise
