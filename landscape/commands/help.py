"""The help of a command, in which no name of an option is cut off on a terminal of 80 columns."""

from __future__ import annotations

import copy
from typing import Any

from typer.core import TyperCommand

PANELS = ("Grid", "Samples", "Directions", "Workers", "Output")
"""The headings under which options stand, in this order, after those without one."""

# What a help shows in place of longer types and words, and how long these may be.
_WORD, _TEXT, _LONGEST_TYPE = "<word>", "<str>", 8


class Command(TyperCommand):
    """A command whose help has a narrow column for types, and one name for each pair of ``--x`` and ``--no-x``."""

    # Typer's table gives each of its columns the same room where they need more than there is.
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of this command with its options as they fit."""
        fitting = copy.copy(self)
        fitting.params = sorted(map(_fitting, self.params), key=_place)
        super(Command, fitting).format_help(ctx, formatter)


def _place(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1


def _fitting(parameter: Any) -> Any:
    """Returns an option as the help shows it."""
    if parameter.param_type_name != "option":
        return parameter
    shown = copy.copy(parameter)
    if shown.secondary_opts:
        name = shown.opts[0].removeprefix("--")
        shown.opts, shown.secondary_opts = [f"--[no-]{name}", *shown.opts[1:]], []
    if shown.metavar and len(shown.metavar) > _LONGEST_TYPE:
        # A line can end at a blank. What stands in brackets is markup, unless a backslash is before it.
        words = shown.metavar.replace("|", " | ").replace("[", "\\[")
        shown.help, shown.metavar = f"{words} {shown.help}", _WORD
    elif shown.multiple and not shown.metavar:
        shown.metavar = _TEXT
    return shown
