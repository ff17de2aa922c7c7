"""What MkDocs fills in while it builds the site: the command line's own help, and options that functions share."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import griffe

_PLACE = "{{ the help of every command }}"


def on_page_markdown(markdown: str, **_details: Any) -> str:
    """Puts the commands' help where a page asks for it, so that it is never older than the program."""
    if _PLACE not in markdown:
        return markdown
    written = subprocess.run(
        [sys.executable, "-m", "typer", "landscape.cli", "utils", "docs", "--name", "landscape"],
        check=True,
        capture_output=True,
        text=True,
    )
    # The page has a title of its own.
    return markdown.replace(_PLACE, written.stdout.partition("\n")[2])


class SharedOptions(griffe.Extension):
    """Shows a function's ``**options`` as ``help`` does, one by one with their defaults."""

    def on_function(self, *, func: griffe.Function, **_details: Any) -> None:
        """Takes the docstring and the parameters from the function itself, which its decorator has completed."""
        if "options" not in func.parameters or not any("documented" in str(item.value) for item in func.decorators):
            return
        function = griffe.dynamic_import(func.path)
        if func.docstring is not None:
            func.docstring.value = inspect.getdoc(function) or ""
        shared = [item for item in inspect.signature(function).parameters.values() if item.name not in func.parameters]
        del func.parameters["options"]
        for item in shared:
            kind, default = griffe.ParameterKind.keyword_only, repr(item.default)
            func.parameters.add(
                griffe.Parameter(
                    item.name, annotation=inspect.formatannotation(item.annotation), kind=kind, default=default
                )
            )
