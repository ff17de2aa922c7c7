"""Builds the interactive page from landscapes, its own assets and the plotly script, and writes it."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from collectors.files.local_files import write_files
from collectors.files.places import check_can_be_file
from collectors.validation import check_choice, check_path, wrong_type, wrong_value

from ..drawing.appearance import DIVERGING
from ..drawing.camera import CameraChoice, offered_cameras
from ..grid.data import LandscapeData
from ..replacing import check_no_input
from ..scales.frame import ASPECTS
from .content import colours, difference_content, landscape_content, title

SIZES = ("full", "small")
SCRIPT_NAME = "plotly.min.js"
# Perceptually uniform and safe for colour-blind readers; matplotlib's names, by the page's.
_COLOUR_MAPS = {
    "Viridis": "viridis", "Cividis": "cividis", "Magma": "magma", "Inferno": "inferno", "Plasma": "plasma",
    "Greys": "Greys_r",
}  # fmt: skip

_LINE_ENDS = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"})


def save_page(
    landscapes: LandscapeData | Sequence[LandscapeData],
    path: str | os.PathLike[str],
    *,
    size: str = "full",
    aspect: str = "equal",
    camera: CameraChoice | None = None,
) -> Path:
    """Writes landscapes as one page that needs no network; a page of that name is replaced once it is whole.

    Args:
        landscapes: one, or several to compare.
        path: a file that ends in .html.
        size: "full" (the page is one file) or "small" (the plotly script, 5 MB, lies beside it and pages in the same
            folder share it).
        aspect: how planes are drawn at first: "equal" (to scale) or "fill" (see ``figures.Look``); the page can change
            it.
        camera: from where surfaces are seen at first (see ``figures.Look``); the page can change it.

    Returns:
        The path of the page.

    Raises:
        ImportError: plotly is not installed.
        TypeError: an argument has the wrong type.
        ValueError: there is no landscape, the name does not end in .html, or size, aspect or camera is unknown.
        NotADirectoryError: the page's directory does not exist.
        LandscapeWriteError: it is one of the landscapes' files.
        FileWriteError: the page cannot be written; what was there is untouched.
    """
    check_choice("size", size, SIZES)
    target = check_path("path", path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise wrong_value("path", "a name that ends in .html", str(path))
    check_can_be_file("path", target)
    small = size == "small"
    text = page_html(landscapes, script=SCRIPT_NAME if small else None, aspect=aspect, camera=camera)
    every = [landscapes] if isinstance(landscapes, LandscapeData) else landscapes
    check_no_input("path", target, [landscape.path for landscape in every])
    script = {target.with_name(SCRIPT_NAME): plotly_script().encode()} if small else {}
    write_files({**script, target: text.encode()})
    return target


def page_html(
    landscapes: LandscapeData | Sequence[LandscapeData],
    *,
    script: str | None = None,
    live: dict[str, Any] | None = None,
    heading: str | None = None,
    aspect: str = "equal",
    camera: CameraChoice | None = None,
) -> str:
    """Returns the page's text.

    Args:
        landscapes: one, or several to compare; with ``live`` there may be none yet.
        script: the address of the plotly script; None puts the script into the page.
        live: the progress that ``landscape plot --watch`` shows first; None for a page that does not change.
        heading: the page's title; None takes the landscape's.
        aspect: how planes are drawn at first, "equal" or "fill".
        camera: from where surfaces are seen at first.

    Raises:
        ImportError: plotly is not installed.
        TypeError: ``landscapes`` has an item that is no Landscape.
        ValueError: there is no landscape.
    """
    shown = _checked(landscapes, may_be_empty=live is not None)
    code = "(() => {\n'use strict';\n" + _joined(".js") + "})();\n"
    camera_shown, cameras = offered_cameras(camera)
    content = {
        "landscapes": [
            landscape_content(item, name, cameras) for item, name in zip(shown, landscape_names(shown), strict=True)
        ],
        # By the indices of the two landscapes, the smaller first: a difference and its opposite have one scale.
        "differences": {
            f"{one} {two}": found
            for (one, first), (two, second) in itertools.combinations(enumerate(shown), 2)
            if (found := difference_content(first, second)) is not None
        },
        "live": live,
        "aspect": check_choice("aspect", aspect, ASPECTS),
        "camera": camera_shown,
        "cameras": list(cameras),
        "colours": {name: colours(colormap) for name, colormap in _COLOUR_MAPS.items()},
        "diverging": colours(DIVERGING),
    }
    if heading is None:
        heading = title(shown[0]) if len(shown) == 1 else f"{len(shown)} loss landscapes"
    if script is None:
        # Packed, the page has 2 MB instead of 5.
        packed, source = _packed_script()
        tag = f'<script type="text/plain" id="packed">{packed}</script>'
    else:
        # A page on the disk has no origin of its own, so the folder's scheme must be named.
        tag, source = f'<script src="{html.escape(script)}"></script>', "'self' file:"
    policy = [
        "default-src 'none'",
        f"script-src {source} {_hash(code)}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live is not None else []),
    ]
    parts = {
        "policy": "; ".join(policy),
        "title": html.escape(heading),
        "style": _joined(".css"),
        "content": json.dumps(content, ensure_ascii=True, allow_nan=False).translate(_LINE_ENDS),
        "plotly": tag,
        "script": code,
    }
    return filled("template.html", parts)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Returns a template of the assets with its parts, which are HTML."""
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset(template))
    # A file's name and its title may hold half a surrogate pair, which no text on a disk does.
    return text.encode("utf-8", "replace").decode("utf-8")


def plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the interactive page needs plotly: pip install 'summary-landscape[interactive]'") from error
    script: str = get_plotlyjs()
    return script


def landscape_names(landscapes: Sequence[LandscapeData]) -> list[str]:
    """Returns a distinct name for each landscape: its file's, with the folder or a number where that is not enough."""
    paths = [landscape.path for landscape in landscapes]
    names = [f"landscape {number}" if path is None else path.name for number, path in enumerate(paths, 1)]
    if len(set(names)) == len(names):
        return names
    # Runs often give their files the same names; then the folder is what differs.
    longer = [
        name if path is None else f"{(path.absolute() if isinstance(path, Path) else path).parent.name}/{name}"
        for name, path in zip(names, paths, strict=True)
    ]
    return [name if longer.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(longer, 1)]


def _checked(landscapes: LandscapeData | Sequence[LandscapeData], *, may_be_empty: bool) -> list[LandscapeData]:
    every: list[Any] = [landscapes]
    if isinstance(landscapes, Sequence) and not isinstance(landscapes, str | bytes):
        every = list(landscapes)
    for landscape in every:
        if not isinstance(landscape, LandscapeData):
            raise wrong_type("landscapes", "a Landscape or a list of them", landscape)
    if not every and not may_be_empty:
        raise wrong_value("landscapes", "at least one landscape", landscapes)
    return every


@functools.cache
def _packed_script() -> tuple[str, str]:
    script = plotly_script()
    return base64.b64encode(gzip.compress(script.encode("utf-8"), mtime=0)).decode("ascii"), _hash(script)


def _joined(ending: str) -> str:
    assets = files(__package__) / "assets"
    return "\n".join(_asset(name) for name in sorted(item.name for item in assets.iterdir()) if name.endswith(ending))


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"
