"""What MkDocs fills in while it builds the site: the commands' help, a page, options that functions share."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from landscape import Landscape
from landscape.interactive import page_html

_PLACE = re.compile(r"^\{\{ the help of (.*) \}\}$", re.MULTILINE)
_EXAMPLE = Path(__file__).parent / "examples" / "digits.h5"
_PAGE = "pages/landscape.html"
# A repository's web page shows the picture; the site shows the page itself.
_PICTURE_OF_THE_PAGE = re.compile(r"^<!-- the page itself -->\n!\[([^\]\n]*)\]\([^)\n]*\)$", re.MULTILINE)
_FRAME = f"""<iframe class="landscape" src="{_PAGE}" title="\\1" loading="lazy"></iframe>

[Open it alone]({_PAGE}){{ target=_blank }}"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the interactive page of a small landscape, made anew so that it is never older than the program."""
    files.append(File.generated(config, _PAGE, content=page_html([Landscape.load(_EXAMPLE)])))
    return files


def on_page_markdown(markdown: str, **_details: Any) -> str:
    """Puts the commands' help and the interactive page where a page asks for them."""
    return _PLACE.sub(_asked_help, _PICTURE_OF_THE_PAGE.sub(_FRAME, markdown))


def _asked_help(place: re.Match[str]) -> str:
    return "\n".join(_help()[command] for command in place[1].split(", "))


@functools.cache
def _help() -> dict[str, str]:
    """Returns each command's help, made anew so that it is never older than the program."""
    written = subprocess.run(
        [sys.executable, "-m", "typer", "landscape.cli", "utils", "docs", "--name", "landscape"],
        check=True,
        capture_output=True,
        text=True,
    )
    sections = re.split(r"^(?=## `landscape )", written.stdout, flags=re.MULTILINE)[1:]
    return {section.split("`")[1].removeprefix("landscape "): section for section in sections}


class SharedOptions(griffe.Extension):
    """Shows a function's ``**options`` as ``help`` does, one by one with their defaults."""

    def on_function(self, *, func: griffe.Function, **_details: Any) -> None:
        """Takes the docstring and the parameters from the function itself, which its decorator has completed."""
        self._complete(func, func)

    def on_class_members(self, *, cls: griffe.Class, **_details: Any) -> None:
        """Takes them from a class whose constructor has the options."""
        if "__init__" in cls.members:
            self._complete(cls, cls.members["__init__"])

    def _complete(self, door: griffe.Object, func: Any) -> None:
        decorators = getattr(door, "decorators", ())
        if "options" not in func.parameters or not any("documented" in str(item.value) for item in decorators):
            return
        function = griffe.dynamic_import(door.path)
        if door.docstring is not None:
            door.docstring.value = inspect.getdoc(function) or ""
        shared = [item for item in inspect.signature(function).parameters.values() if item.name not in func.parameters]
        del func.parameters["options"]
        for item in shared:
            kind, default = griffe.ParameterKind.keyword_only, repr(item.default)
            func.parameters.add(
                griffe.Parameter(
                    item.name, annotation=inspect.formatannotation(item.annotation), kind=kind, default=default
                )
            )
