"""Figures without pyplot: nothing is registered, nothing must be closed, no window can open."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from collectors.files.local_files import write_bytes
from collectors.files.places import check_can_be_file
from collectors.validation import check_float, check_instance, check_path, wrong_type, wrong_value

from .fitting import fit, room_for_axes

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from .camera import Camera


_DESCRIPTION = {"png": "Description", "pdf": "Subject", "svg": "Description"}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def new_axes(width: float, height: float, projection: str | None = None) -> Axes:
    """Returns axes on a figure of their own, sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="compressed").add_subplot(projection=projection)


def check_size(size: object, ax: object = None) -> tuple[float, float] | None:
    """Returns the width and the height of a figure of its own, in inches; None where nobody chose."""
    if size is None:
        return None
    if ax is not None:
        raise ValueError("size must be left out where ax is given: it is that of a figure of its own.")
    expected = "(width, height) in inches, each from 1 to 100"
    width, height = _pair("size", size, expected)
    if not (1 <= width <= 100 and 1 <= height <= 100):
        raise wrong_value("size", expected, size)
    return width, height


def _pair(name: str, value: object, expected: str) -> tuple[float, float]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise wrong_type(name, expected, value)
    first, second = (check_float(f"{name}[{index}]", item) for index, item in enumerate(value))
    return first, second


def settle(figure: Any, cameras: Sequence[Camera] = (), *, grow: bool = True) -> bool:
    """Computes the layout now, so that what is placed in pixels finds the axes in their final place; see ``fit``."""
    return fit(figure, cameras, grow=grow)


def save_figure(
    figure: Axes | FigureBase,
    path: str | os.PathLike[str] | BinaryIO,
    dpi: int = 200,
    *,
    description: str | None = None,
) -> None:
    """Writes a picture; the same figure gives the same bytes.

    Args:
        figure: a figure, or the axes a plot function returned.
        path: a file that ends in .png, .pdf or .svg, or a binary stream, which gets PNG.
        dpi: dots per inch of PNG, and of the parts of PDF and SVG that are images.
        description: what the picture shows, for people who cannot see it; it becomes part of the file.

    Raises:
        TypeError: ``figure`` has no picture, ``description`` is no text, or ``path`` is neither a path nor a stream.
        ValueError: the name ends in anything else, or the figure is too small for its axes.
        FileWriteError: the file cannot be written; what was there is untouched.
    """
    whole = _figure_of(figure)
    if description is not None:
        check_instance("description", description, str, "a str or None")
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "write"):
            raise wrong_type("path", "a path or a binary stream", path)
        _save(whole, path, "png", dpi, description)
        return
    target = check_path("path", path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise wrong_value("path", "a name that ends in .png, .pdf or .svg", str(path))
    check_can_be_file("path", target)
    image = io.BytesIO()
    _save(whole, image, kind, dpi, description)
    write_bytes(target, image.getvalue())


def figure_pixels(figure: Axes | FigureBase, dpi: int = 100) -> UInt8[np.ndarray, "height width 3"]:
    """Returns a picture as red, green and blue, shape (height, width, 3).

    Args:
        figure: a figure, or the axes a plot function returned.
        dpi: dots per inch.

    Raises:
        TypeError: ``figure`` has no picture.
    """
    import math

    import numpy as np

    whole = _figure_of(figure)
    raw = io.BytesIO()
    with room_for_axes(whole):
        whole.savefig(raw, format="rgba", dpi=dpi)
    values = np.frombuffer(raw.getvalue(), np.uint8)
    # Matplotlib leaves out the rest of a pixel, and its product may end one bit below ours.
    width, height = whole.get_size_inches() * dpi
    rows = (math.floor(height), round(height))
    columns = next(count for count in (math.floor(width), round(width)) if len(values) in [4 * count * n for n in rows])
    return values.reshape(-1, columns, 4)[:, :, :3].copy()


def _save(figure: Figure, file: BinaryIO, kind: str, dpi: int, description: str | None) -> None:
    import matplotlib

    metadata = _METADATA[kind] | ({} if description is None else {_DESCRIPTION[kind]: description})
    # The salt makes the names inside an SVG the same each time; fonts of type 42 stay text in a PDF.
    with matplotlib.rc_context({"svg.hashsalt": "summary-landscape", "pdf.fonttype": 42}):
        with room_for_axes(figure):
            figure.savefig(file, format=kind, dpi=dpi, metadata=metadata)


def _figure_of(figure: Any) -> Figure:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    root = figure if isinstance(figure, Artist) else None
    while root is not None and not isinstance(root, Figure) and root.figure is not root:
        root = root.figure
    if isinstance(root, Figure):
        return root
    raise wrong_type("figure", "a matplotlib figure or axes that lie on one", figure)
