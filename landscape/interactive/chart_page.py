"""The page of a curvature or a comparison that is being measured: its picture and its facts, loaded anew by itself."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing.canvas import save_figure
from ..record.checks import PointStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SECONDS = 3
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
{refresh}<title>{name}</title>
<style>body {{ font: 16px sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }} img {{ max-width: 100% }}
pre {{ white-space: pre-wrap }}</style>
<h1>{name}</h1>
<p role="status">{progress}</p>
{picture}<pre>{facts}</pre>
</html>
"""


@dataclass(frozen=True)
class Chart:
    """How a kind of file that is no landscape is read and shown.

    Attributes:
        load: reads a file.
        draw: returns its picture.
        facts: what it holds, in words.
        json: what it holds, as JSON values.
    """

    load: Callable[[Any], Any]
    draw: Callable[[Any], Axes]
    facts: Callable[[Any], str]
    json: Callable[[Any], dict[str, Any]]


def chart_picture(chart: Chart, record: Any) -> str:
    """Returns the picture as HTML; nothing where nothing is measured yet."""
    if not any((status == PointStatus.MEASURED).any() for status in map(np.asarray, record.statuses)):
        return ""
    image = io.BytesIO()
    save_figure(chart.draw(record), image)
    data = base64.b64encode(image.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="The picture of the facts below.">\n'


def chart_page(name: str, progress: str, picture: str, facts: str, *, is_done: bool) -> str:
    """Returns the page's text; until all is measured, a browser loads it anew every few seconds."""
    return _PAGE.format(
        refresh="" if is_done else f'<meta http-equiv="refresh" content="{_SECONDS}">\n',
        name=html.escape(name),
        progress=html.escape(progress),
        picture=picture,
        facts=html.escape(facts),
    )
