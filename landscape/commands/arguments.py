"""What several commands share: options, how errors name them, and how an interruption ends."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from collectors.errors import LandscapeError
from workers.errors import CallbackFunctionError

from ..shadowing import check_folder
from ..survey.options import EXPLANATIONS, RunOptions, parameters, set_options

_Command = TypeVar("_Command", bound=Callable[..., None])


# Of every command: files are written by commands that have these.
_COMMON = {"overwrite": "--overwrite", "output": "--output"}
_VALUE = r"(?:(?P<text>\"[^\"]*\"|'[^']*'|[\w.+-]*\w)(?![\w(]))?"
_spelling: Mapping[str, str] = _COMMON

_CONTINUE = "What was measured is in the landscape file; the same command continues from there."


def shown(name: str, *flags: str) -> Any:
    """Returns typer's option of that name in ``RunOptions``."""
    sentence = EXPLANATIONS[name].replace("``", "").split(". ")[0].rstrip(".")
    return typer.Option(*flags, help=f"{sentence[0].upper()}{sentence[1:]}.")


def with_options(*names: str) -> Callable[[_Command], _Command]:
    """Gives a command, in place of its ``**options``, those of ``RunOptions``, which typer must be able to read."""

    def complete(command: _Command) -> _Command:
        chosen = [option for option in parameters(RunOptions) if option.name in names]
        named = [option.replace(annotation=Annotated[option.annotation, shown(option.name)]) for option in chosen]
        set_options(command, named, evaluated=True)
        return command

    return complete


def load_function(text: str) -> Callable[[], Any]:
    """Returns the function that ``module:function`` names; the working directory is searched first."""
    module_name, separator, function_name = text.partition(":")
    if not (module_name and separator and function_name):
        raise ValueError(f"--function must be module:function, such as my_training:callback_fn, but got {text!r}.")
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
    except Exception as error:
        # The user's module failed, which is no bug of this program.
        raise ValueError(
            f"--function names the module {module_name!r}, which cannot be imported: {type(error).__name__}: {error}. "
            f"Mend it until `python -c 'import {module_name}'` works; landscape --debug shows the line."
        ) from error
    try:
        function = getattr(module, function_name)
    except AttributeError as error:
        raise ValueError(f"--function names {function_name!r}, which {module.__file__} does not define.") from error
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Makes errors and warnings that name an argument of Python name the option that can be typed instead.

    Args:
        options: argument to option, such as {"device_ids": "--devices"}; an item of a dictionary is named as errors
            name it, "collect_landscape['landscape_size']".
    """
    global _spelling
    before, _spelling = _spelling, {**_COMMON, **options}
    try:
        yield
    except (LandscapeError, TypeError, ValueError, OSError) as error:
        if "collect_landscape={" in str(error):
            error.add_note("The command line has no option for that; collect_landscape is an argument in Python.")
        # What the user's own function said is quoted as it is.
        if len(error.args) == 1 and not isinstance(error, CallbackFunctionError):
            error.args = (as_typed(str(error)),)
        raise
    finally:
        _spelling = before


def as_typed(text: str) -> str:
    """Returns an error's or a warning's text in which arguments are the options of the command that runs.

    The packages write ``overwrite=True``, ``sampling="adaptive"``, ``output=`` and ``device_ids``; the command line
    says --overwrite, --sampling adaptive, --output and --devices.
    """
    text, mark, traceback = text.partition("Traceback (most recent call last)")
    for name, option in _spelling.items():
        if name.isidentifier():
            text = re.sub(rf"(?<![\w.'\"/(-]){name}={_VALUE}", partial(_option_with_value, option), text)
        # In a sentence, only a name that is no English word is surely an argument's.
        sure = rf"|(?<![\w'/.-]){re.escape(name)}(?!\w|\.\w|=)" if "_" in name and name.isidentifier() else ""
        text = re.sub(rf"^{re.escape(name)}(\[[^\]]*\])*(?= |=){sure}", option, text)
    return re.sub(r"\b([Tt]he same) call\b", r"\1 command", text) + mark + traceback


def _option_with_value(option: str, found: re.Match[str]) -> str:
    value = (found["text"] or "").strip("\"'")
    if value == "False":
        return option.replace("--", "--no-", 1)
    # existing="overwrite" is simply --overwrite.
    return option if value in ("", "True", option.removeprefix("--")) else f"{option} {value}"


def integers(option: str, text: str | None) -> list[int] | None:
    """Returns the whole numbers of a text such as ``0,1``; None where the option is absent."""
    try:
        return None if text is None else [int(item) for item in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"{option} must be whole numbers separated by commas, such as 0,1, but got {text!r}."
        ) from error


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ends the work with one clear text on Ctrl-C and SIGTERM, after everything was closed."""
    is_terminated = False

    def stop(_number: int, _frame: object) -> None:
        # The same way out as Ctrl-C, so that no failing point is blamed for it. Ray may replace the error that is
        # raised here by one of its own, so the error cannot say which of the two it was.
        nonlocal is_terminated
        is_terminated = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        word, number = ("Terminated", signal.SIGTERM) if is_terminated else ("Interrupted", signal.SIGINT)
        typer.secho(f"\n{word}. {_CONTINUE}", fg="yellow", err=True)
        raise typer.Exit(128 + number) from error
    finally:
        signal.signal(signal.SIGTERM, before)
