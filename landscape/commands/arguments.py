"""What several commands share: options and checkpoints as typed, how errors name them, how an interruption ends."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

import typer

from collectors.errors import LandscapeError, RunDirectoryError
from collectors.files.places import with_slashes
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory, find_run
from workers.errors import CallbackFunctionError, quotes_user
from workers.users_code import warn_user

from ..planes.networks import is_run_folder
from ..record.option import Option
from ..record.writer import noting_files
from ..shadowing import check_folder

_Number = TypeVar("_Number", int, float)

_spelling: Mapping[str, str] = {}  # of the command that runs
_VALUE = r"(?:(?P<value>\"[^\"]*\"|'[^']*'|[\w.+-]*\w)(?![\w(]))?"


def load_function(text: str) -> Callable[[], Any]:
    module_name, separator, function_name = text.partition(":")
    if not (module_name and separator and function_name):
        raise ValueError(f"--function must be module:function, such as my_training:callback_fn, but got {text!r}.")
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        parts = PurePath(module_name.removesuffix(".py")).parts
        dotted = ".".join(part for part in parts if part.isidentifier()) or "my_training"
        raise ValueError(
            "--function must name a module as `import` does, seen from the folder in which the command runs, such as "
            f"{dotted}:{function_name}, but got {text!r}."
        )
    folder = Path.cwd()
    check_folder(folder)
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise ValueError(
                f"--function names the module {module_name!r}, which imports {error.name!r}, which is not installed. "
                "Install it, or use the Python environment in which the network was trained."
            ) from error
        raise ValueError(
            f"--function names the module {module_name!r}, which is neither in {folder} nor installed."
        ) from error
    except (Exception, SystemExit) as error:
        # The user's module failed, which is no bug of this program; what it said is quoted as it is.
        remedy = (
            'It trains when it is imported, as each worker does: put what trains below `if __name__ == "__main__":`'
            if isinstance(error, RunDirectoryError)
            else f"Mend it until `python -c 'import {module_name}'` works"
        )
        raise CallbackFunctionError(
            f"--function names the module {module_name!r}, which cannot be imported: {type(error).__name__}: "
            f"{str(error).rstrip('.')}. {remedy}; landscape --debug shows the line."
        ) from error
    try:
        function = getattr(module, function_name)
    except AttributeError as error:
        raise ValueError(f"--function names {function_name!r}, which {module.__file__} does not define.") from error
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Makes errors and warnings that name an argument of Python name the option that can be typed instead."""
    # An item of a dictionary is named as errors name it, "collect_landscape['landscape_size']". Phrases that only suit
    # Python are replaced wherever they stand.
    global _spelling
    before, _spelling = _spelling, {**_spelling, **options}
    try:
        yield
    except (LandscapeError, TypeError, ValueError, OSError) as error:
        if len(error.args) == 1 and not quotes_user(error):
            error.args = (as_typed(str(error)),)
        if "collect_landscape={" in str(error):
            error.add_note("The command line has no option for that; collect_landscape is an argument in Python.")
        raise
    finally:
        _spelling = before


def as_typed(text: str) -> str:
    """Returns an error's or a warning's text in which arguments are the options of the command that runs."""
    # The packages write overwrite=True, sampling="adaptive", output= and device_ids; the command line says --overwrite,
    # --sampling adaptive, --output and --devices.
    text, mark, traceback = text.partition("Traceback (most recent call last)")
    for phrase in filter(_is_phrase, _spelling):
        text = text.replace(phrase, _spelling[phrase])
    text = _arguments(frozenset(_spelling)).sub(_typed, text)
    return re.sub(r"\b([Tt]he same|[Tt]his) call\b", r"\1 command", text) + mark + traceback


def _is_phrase(name: str) -> bool:
    """Returns whether it is a phrase of an error's text, or what was typed for an item."""
    return any(part in name for part in ("={", "][", " "))


@functools.cache
def _arguments(names: frozenset[str]) -> re.Pattern[str]:
    """Returns what finds the arguments in a text: with a value, at the beginning, in a list of what differs."""
    every = sorted((name for name in names if not _is_phrase(name)), key=len, reverse=True)
    words = [name for name in every if name.isidentifier()]
    # In a sentence, only a name that is no English word is surely an argument's; and "run directory" is no --run.
    sure = [name for name in words if "_" in name]
    any_of, word, surely = ("|".join(map(re.escape, group)) or "(?!)" for group in (every, words, sure))
    return re.compile(
        rf"(?<![\w.'\"/(-])(?P<given>{word})={_VALUE}|^(?P<first>{any_of})(?:\[[^\]]*\])*(?=[ =])(?! directory)"
        rf"|(?m:^)  (?P<differs>{any_of})(?=: the file has )|(?<![\w'/.-])(?P<sure>{surely})(?!\w|\.\w|=)"
    )


def _typed(found: re.Match[str]) -> str:
    if found["given"] is None:
        return f"  {_spelling[found['differs']]}" if found["differs"] else _spelling[found["first"] or found["sure"]]
    option, value = _spelling[found["given"]], (found["value"] or "").strip("\"'")
    if value == "False":
        return option.replace("--", "--no-", 1)
    # existing="overwrite" is simply --overwrite.
    return option if value in ("", "True", option.removeprefix("--")) else f"{option} {value}"


def sample_counts(option: str, text: str) -> int | dict[str, int]:
    """Returns a number of samples, or one for each data set of a text such as ``train=1000,test=500``."""
    try:
        if "=" not in text:
            return int(text)
        pairs = (item.split("=") for item in text.split(","))
        return {name.strip(): int(count) for name, count in pairs}
    except ValueError as error:
        raise ValueError(
            f"{option} must be a whole number such as 1000, or one for each data set such as train=1000,test=500, but "
            f"got {text!r}."
        ) from error


def _listed(number: type[_Number], expected: str) -> Callable[[str, str], list[_Number]]:
    return lambda option, text: list(numbers_between(",", option, text, expected, number))


integers = _listed(int, "whole numbers separated by commas, such as 0,1")
numbers = _listed(float, "numbers separated by commas, such as -1,1.5")


def numbers_between(
    separator: str, option: str, text: str, expected: str, number: type[_Number], counts: Sequence[int] = ()
) -> tuple[_Number, ...]:
    """Returns the numbers between separators, as many as ``counts`` allows; ``expected`` is for the error's text."""
    try:
        found = tuple(map(number, text.lower().split(separator)))
    except ValueError:
        found = ()
    if not found or (counts and len(found) not in counts):
        raise ValueError(f"{option} must be {expected}, but got {text!r}.")
    return found


def one_or_each(option: str, text: str | None, example: str) -> Any:
    """Returns what ``79`` or ``79x40`` says; None where the option is absent."""
    if text is None:
        return None
    found = numbers_between("x", option, text, f"a number such as {example}", int, (1, 2))
    return found[0] if len(found) == 1 else found


def numbers_of(option: str, text: str, run_directory: str) -> list[int]:
    """Returns the numbers of checkpoints such as ``0,5,20``; of a range such as ``0-20``, those that the run has."""
    ends = [part.strip() for part in text.split("-")]
    if len(ends) != 2 or not all(end.isdecimal() for end in ends):
        return integers(option, text)
    first, last = map(int, ends)
    run = RunDirectory(find_run(run_directory))
    listed = tuple(number for number in sorted(run.metadata.files) if first <= number <= last)
    found, missing = run.present(listed), run.missing(listed)
    if not found:
        raise ValueError(f"{option} {text} holds no checkpoint of {run_directory}, which has {run.present_numbers}.")
    if missing:
        warn_user(f"{run.path} has no checkpoints of {run.settings.unit}s {missing}; {option} {text} means the others.")
    return found


def needed(flag: str, value: str | None, remedy: str) -> str:
    """Returns what was typed for an option that another use of the command does without."""
    if value is None:
        raise typer.BadParameter(f"it is missing; {remedy}.", param_hint=flag)
    return value


def check_left_out(where: str, values: Mapping[str, Any], table: Mapping[str, Option]) -> None:
    """Raises an error for options that are not as in the table, and mean nothing ``where`` the command is used."""
    for name, value in values.items():
        if value not in (None, [], (), table[name].default if name in table else False):
            raise ValueError(f"{name}{'=False' if value is False else ''} must be left out {where}.")


@dataclass(frozen=True)
class TypedCheckpoint:
    """A checkpoint as it is typed on the command line: a file, or one of a run directory."""

    name: str  # for pictures; "" where none was given
    place: str  # a file, or a run directory
    number: int | None = None  # of the run's checkpoint; None takes the last one

    @classmethod
    def read(cls, text: str) -> TypedCheckpoint:
        """Returns what is typed: a file, RUN_DIR or RUN_DIR@NUMBER, with NAME= in front or without."""
        name, rest = "", text
        folder, _, number = text.rpartition("@")
        is_there = Path(text).exists() or (number.isdecimal() and Path(folder).is_dir())
        if not is_there and "=" in with_slashes(text.partition("://")[0]).partition("/")[0]:
            name, _, rest = text.partition("=")
            if not name or not rest:
                raise ValueError(f"CHECKPOINTS must be a file, RUN_DIR@NUMBER or NAME=FILE, but got {text!r}.")
        place, _, number = rest.rpartition("@")
        if place and number.isdecimal() and not Path(rest).exists():
            return cls(name, place, int(number))
        if place and not Path(rest).exists() and (Path(place) / CHECKPOINT_FOLDER).is_dir():
            raise ValueError(
                f"CHECKPOINTS must be RUN_DIR@NUMBER, whose number is an epoch or a step such as {place}@20, or "
                f"RUN_DIR alone for its last checkpoint, but got {rest!r}."
            )
        return cls(name, rest)

    @property
    def is_run(self) -> bool:
        """Whether it is a run directory, or a checkpoint of one."""
        return self.number is not None or is_run_folder(self.place)

    def weights(self, space: WeightSpace) -> Any:
        if not self.is_run:
            return self.place
        run = self.run()
        number = max(run.metadata.files) if self.number is None else self.number
        return run.checkpoint(number, space)

    def run(self) -> RunDirectory:
        return RunDirectory(find_run(self.place))

    @property
    def label(self) -> str:
        """What pictures call it where several must be told apart."""
        number = "" if self.number is None else f"@{self.number}"
        return self.name or f"{Path(self.place).name if self.is_run else Path(self.place).stem}{number}"

    @staticmethod
    def named_weights(label: str, found: Sequence[TypedCheckpoint], space: WeightSpace) -> dict[str, Any] | list[Any]:
        """Returns weights by their names; a list where nobody named them, because files have names of their own."""
        if not any(item.name or item.is_run for item in found):
            return [item.place for item in found]
        named = {item.label: item.weights(space) for item in found}
        if len(named) < len(found):
            raise ValueError(
                f"{label} must have different names, but got {', '.join(item.label for item in found)}. Put NAME= in "
                "front of each."
            )
        return named


@contextlib.contextmanager
def interruptible(*, overwrite: bool = False) -> Iterator[None]:
    """Ends the work with one clear text on Ctrl-C and SIGTERM; with ``overwrite`` the same command begins anew."""
    is_terminated = False

    def stop(_number: int, _frame: object) -> None:
        # The same way out as Ctrl-C, so that no failing point is blamed for it. Ray may replace the error that is
        # raised here by one of its own, so the error cannot say which of the two it was.
        nonlocal is_terminated
        is_terminated = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with noting_files() as files:
            yield
    except KeyboardInterrupt as error:
        word, number = ("Terminated", signal.SIGTERM) if is_terminated else ("Interrupted", signal.SIGINT)
        kept, anew = "This command measured nothing yet.", " without --overwrite" if overwrite else ""
        if paths := list(files):
            where = paths[0] if len(paths) == 1 else f"{len(paths)} files, the last of them {paths[-1]}"
            kept = f"What was measured is in {where}; the same command{anew} continues from there."
        typer.secho(f"\n{word}. {kept}", fg="yellow", err=True)
        raise typer.Exit(128 + number) from error
    finally:
        signal.signal(signal.SIGTERM, before)
