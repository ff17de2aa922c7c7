"""The options of commands: those of calls in Python in the form that is typed, and what errors call them."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from ..planes.further_runs import as_also
from ..record.hdf5 import LANDSCAPE
from ..record.option import Option
from ..record.option_kinds import GridOptions, MeasureOptions, RunOptions
from ..record.options import options_of, table_of
from . import config
from .arguments import integers, interruptible, numbers, options_named, sample_counts
from .next_steps import show_where_to_look
from .run_facts import facts_of, print_result

PANELS = ("Grid", "Samples", "Directions", "Workers", "Output")
"""The headings under which options of measurements stand, in this order."""

# Of all headings.
_ORDER = (None, "Curve", *PANELS, "Page", "Hero", "Animation", "Curvature", "Import", "Checkpoints", "Tracker")

# What a help shows in place of longer types and words, and how long these may be.
_WORD, _TEXT, _LONGEST_TYPE = "<word>", "<str>", 8

# A command that measures returns what it measured, in files or not.
_Command = Callable[..., Sequence[Any] | None]
_NOTHING: Mapping[str, Any] = {}

WORKER_OPTIONS = ("devices_per_worker", "workers_per_device", "address")
RUN_OPTIONS = tuple(options_of(RunOptions))
SURVEY_OPTIONS = tuple(
    name for name in RUN_OPTIONS if name in {*MeasureOptions.__annotations__, *GridOptions.__annotations__}
)

RunDirectory = Annotated[
    str, typer.Argument(help="The directory that a SummaryCollector wrote, or its URL such as s3://bucket/run.")
]

OUTPUT = Option(None, flags=("-o", "--output"), panel="Output")

_COMMON: Mapping[str, Option] = {
    "function": Option(
        ..., help="module:function of the callback_fn; the working directory is searched first.", typed=str
    ),
    "as_json": Option(False, help="Print the facts as JSON, for programs.", flags=("--json",), panel="Output"),
}


# A file that cannot be read is measured again by another command, whose options are not those of the one that runs.
_OF_READING = {"again with overwrite=True": "again"}


def _number_or_text(_option: str, text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# Where no number of samples was typed.
_OF_THE_RUN = {"num_samples is ": "the number of samples that the run asks for is "}
# What is typed in another form than Python's: of the flag and what is typed, what Python takes.
_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "device_ids": integers,
    "num_samples": sample_counts,
    "which": lambda _option, text: tuple(part.strip() for part in text.split(",")),
    "budget": _number_or_text,
    "limits": numbers,
    "also": lambda _option, items: as_also(items),
}


def _values(measured: Any) -> dict[str, Any]:
    from ..record.record import Record

    *_, values_of = facts_of(measured.kind if isinstance(measured, Record) else LANDSCAPE)
    return values_of(measured)


def with_options(
    *names: str,  # in the order of the help
    kind: type[Any] = RunOptions,  # whose options they are
    table: Mapping[str, Option] = _NOTHING,  # options of this command alone, or what it says of them
    called: Mapping[str, str] = _NOTHING,  # further arguments in errors, and what is typed; see ``options_named``
    read: Mapping[str, Callable[[str, Any], Any]] = _NOTHING,  # what takes the flag and the typed text to the value
) -> Callable[[_Command], _Command]:
    """Gives a command, in place of its ``**options``, those of a table; and errors and warnings what is typed."""
    # A parameter that the command declares, with typer's option or argument in its annotation, may be among the names;
    # those that are not come first.
    known, forms = {**_COMMON, **table_of(kind), **table}, {**_READ, **read}

    def complete(command: _Command) -> _Command:
        signature = inspect.signature(command, eval_str=True)
        declared = {
            name: item for name, item in signature.parameters.items() if hasattr(item.annotation, "__metadata__")
        }
        leading = [item for name, item in declared.items() if name not in names]
        listed = [declared.get(name) or _shown(name, known[name]) for name in names]
        flags = {item.name: _flag(item) for item in (*leading, *listed) if _flag(item)}
        # What shows its progress can be continued, and has so many options that a file may hold them.
        measures = "progress" in names
        spelling = {**({} if measures else _OF_READING), **flags, **called}
        in_file = {flags[item.name].removeprefix("--"): item for item in (*leading, *listed) if item.name in flags}
        of_files = config.parameters(command.__name__, in_file) if measures else []
        prints_json = measures and "as_json" not in names

        @functools.wraps(command)
        def run_as_typed(**typed: Any) -> None:
            *_, target = [None, *(typed.pop(item.name, None) for item in of_files)]
            as_json = prints_json and typed.pop("as_json")
            ending = interruptible(overwrite=typed.get("overwrite", False)) if measures else contextlib.nullcontext()
            of_run = _OF_THE_RUN if typed.get("num_samples", "") is None else _NOTHING
            with ending, options_named({**spelling, **of_run}):
                read_in = [name for name, value in typed.items() if name in forms and value is not None]
                values = {**typed, **{name: forms[name](flags[name], typed[name]) for name in read_in}}
                tabled = [name for name in names if name not in declared]
                # What is left out is as in Python, although its help shows no default.
                wanted = {name: known[name].default if values[name] is None else values[name] for name in tabled}
                checked = {name: known[name].checked(flags[name], value) for name, value in wanted.items()}
                if target is not None:
                    config.save_config(target, command.__name__, typed, in_file)
                measure = functools.partial(command, **{**values, **checked})
                if as_json:
                    dry_run = checked.get("dry_run", False)
                    measured = print_result(measure, lambda found: list(map(_values, found or ())), dry_run=dry_run)
                else:
                    measured = measure()
                if measured and values.get("progress", True):
                    show_where_to_look(measured)

        ordered = [*leading, *(item.replace(kind=item.KEYWORD_ONLY) for item in listed), *of_files]
        if prints_json:
            ordered.append(_shown("as_json", _COMMON["as_json"]))
        vars(run_as_typed).update(__signature__=signature.replace(parameters=ordered), spelling=spelling)
        return run_as_typed

    return complete


def _shown(name: str, option: Option) -> inspect.Parameter:
    """Returns an option as typer reads it: its help is the first sentence, its words a shell completes."""
    default = ",".join(option.default) if isinstance(option.default, tuple) else option.default
    if type(None) in get_args(option.typed):
        default = None
    elif default is ...:
        default = inspect.Parameter.empty
    sentence = option.text.replace("``", "").split(". ")[0].rstrip(".")
    more: dict[str, Any] = {"help": option.help or f"{sentence[:1].upper()}{sentence[1:]}.", "metavar": option.metavar}
    if words := option.choices:
        # Whoever takes the value checks it, so that a wrong word gets the same error as in Python.
        more["autocompletion"] = lambda incomplete: [word for word in words if word.startswith(incomplete)]
        more["metavar"] = f"[{'|'.join(words)}]"
    info = typer.Option(*option.flags, rich_help_panel=option.panel or None, **more)
    # What may be left out is text, where nothing else is said.
    annotation = Annotated[option.typed or (str | None if default is None else type(default)), info]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag(parameter: inspect.Parameter) -> str:
    """Returns what is typed for a parameter of a command; nothing for an argument."""
    (info,) = parameter.annotation.__metadata__
    if not isinstance(info, typer.models.OptionInfo):
        return ""
    return config.flags_of(parameter)[0]


class Command(TyperCommand):
    """A command whose help has a narrow column for types, and one name for each pair of ``--x`` and ``--no-x``."""

    # Typer's table gives each of its columns the same room where they need more than there is.
    def format_help(self, ctx: Any, formatter: Any) -> None:
        fitting = copy.copy(self)
        fitted = map(_fitting, self.params)
        fitting.params = sorted(fitted, key=lambda item: _ORDER.index(getattr(item, "rich_help_panel", None)))
        super(Command, fitting).format_help(ctx, formatter)


def _fitting(parameter: Any) -> Any:
    if parameter.param_type_name != "option":
        return parameter
    shown = copy.copy(parameter)
    if shown.secondary_opts:
        name, other = shown.opts[0].removeprefix("--"), shown.secondary_opts[0]
        is_pair = other == f"--no-{name}"
        shown.opts, shown.secondary_opts = [f"--[no-]{name}" if is_pair else other, *shown.opts[1:]], []
        # A default is of the first name.
        shown.show_default = shown.show_default and is_pair
    if shown.metavar and len(shown.metavar) > _LONGEST_TYPE:
        # A line can end at a blank. What stands in brackets is markup, unless a backslash is before it.
        words = shown.metavar.replace("|", " | ").replace("[", "\\[")
        shown.help, shown.metavar = f"{words} {shown.help}", _WORD
    elif shown.multiple and not shown.metavar:
        shown.metavar = _TEXT
    return shown
