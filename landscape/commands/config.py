"""The options of a call in a TOML file: written by ``--save-config``, read by ``--config``; what is typed wins."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from collectors.files.local_files import write_text
from collectors.files.places import check_can_be_file

from ..replacing import first_bytes

_BEGINS = "# summary-landscape: options of "
# Which values an option of a type may have in a file, in words too; any other is typed as text.
_TYPES: Mapping[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
}
# Nobody wants every later call to be a rehearsal because the first one was.
_OF_ONE_CALL = ("dry_run",)
_TEXT = ((str, int, float), "text as it is typed after the flag")


def parameters(command: str, options: Mapping[str, inspect.Parameter]) -> Sequence[inspect.Parameter]:
    """Returns the two options that a command has beside those which a file may hold, by their names there."""

    def take_over(context: typer.Context, file: Path | None) -> Path | None:
        if file is not None and not context.resilient_parsing:
            context.default_map = {**(context.default_map or {}), **_values(file, command, options)}
        return file

    return [
        _parameter("config", "A TOML file of options, names without dashes; what is typed wins.", callback=take_over),
        _parameter("save_config", "Write the options that were given into a TOML file, for --config."),
    ]


def _parameter(name: str, help: str, **more: Any) -> inspect.Parameter:
    # Eager, because what the file says counts as the defaults of all others.
    info = typer.Option(help=help, metavar="FILE", is_eager=True, rich_help_panel="Output", **more)
    annotation = Annotated[Path | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _values(file: Path, command: str, options: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Returns the values of a file by the names of the command's parameters."""
    values = {}
    for key, value in _read(file).items():
        if key not in options:
            typed = f"--{key}"
            known = next((name for name, item in options.items() if typed in (f"--no-{name}", flags_of(item)[1])), None)
            remedy = (
                f"Correct or remove it; `landscape {command} --help` lists them. --config, --save-config and --json "
                "are always typed."
                if known is None
                else f"Write {known} = false for {typed}."
            )
            raise ValueError(
                f"--config {file} must hold options of `landscape {command}` without their dashes, but has {key!r}. "
                f"{remedy}"
            )
        values[options[key].name] = _checked(file, key, value, options[key])
    return values


def flags_of(option: inspect.Parameter) -> tuple[str, str]:
    """Returns what is typed for an option and for its opposite, such as "--quiet"; "" where that has no name."""
    (info,) = option.annotation.__metadata__
    # In an annotation, typer takes the first flag for the default.
    pairs = [str(flag).partition("/") for flag in (info.default, *(info.param_decls or ()))]
    typed = next((flag for flag, *_ in pairs if flag.startswith("--")), f"--{option.name.replace('_', '-')}")
    return typed, next((flag for *_, flag in pairs if flag), "")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"--config {file} does not exist. Correct the path; --save-config writes such a file."
        ) from error
    except OSError as error:
        raise type(error)(f"--config {file} cannot be read: {error.strerror}. Give a TOML file.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--config {file} must be a TOML file, but is none: {error}. Correct that line.") from error


def _checked(file: Path, key: str, value: Any, option: inspect.Parameter) -> Any:
    """Returns a value in the form in which it would be typed."""
    hint = get_args(option.annotation)[0]
    is_union = get_origin(hint) in (Union, UnionType)
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if is_union else [hint]
    several = get_origin(kinds[0]) is list
    types, expected = _TYPES.get(kinds[0], _TEXT)
    listed = value if several and isinstance(value, list) else [value]
    for item in listed:
        if not isinstance(item, types) or (isinstance(item, bool) and bool not in types):
            more = " or a list of such" if several else ""
            raise TypeError(f"--config {file} must have {expected}{more} for {key}, but has {value!r}. Correct it.")
    typed = [str(item) for item in listed] if types is _TEXT[0] else listed
    return typed if several else typed[0]


def save_config(file: Path, command: str, values: Mapping[str, Any], options: Mapping[str, inspect.Parameter]) -> None:
    """Writes the values that differ from the defaults of the options, which are by their names in the file."""
    check_can_be_file("--save-config", file.absolute())
    begins = first_bytes(file, len(_BEGINS))
    if begins and begins != _BEGINS.encode():
        raise FileExistsError(
            f"--save-config {file} is there and was not written by --save-config. It was left as it is. Give another "
            "name."
        )
    given = {
        key: values[item.name]
        for key, item in options.items()
        if values[item.name] not in (item.default, None, []) and item.name not in _OF_ONE_CALL
    }
    write_text(file.resolve(), f"{_BEGINS}landscape {command}\n{as_toml(given)}")


def as_toml(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    # TOML knows JSON's escapes, and wants the one character escaped that JSON leaves.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
