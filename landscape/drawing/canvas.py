"""Pictures without pyplot, begun, finished and saved: nothing is registered or must be closed, no window can open."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from collectors.files.local_files import TemporaryFolder, check_replaceable, write_bytes
from collectors.files.places import check_can_be_file
from collectors.shapes import UInt8
from collectors.validation import check_float, check_instance, check_path, wrong_type, wrong_value

from .appearance import Appearance, appearance_of, draw_legend
from .camera import Camera
from .fitting import room_for_axes, settle, space_numbers
from .texts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase


_DESCRIPTION = {"png": "Description", "pdf": "Subject", "svg": "Description"}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def new_figure(size: tuple[float, float], layout: Literal["compressed", "constrained"] | None) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    # Without a canvas for pixels, each measuring of text makes one: a sixth of a picture's time.
    FigureCanvasAgg(figure)
    return figure


def check_size(size: object, ax: object = None) -> tuple[float, float] | None:
    """Returns the width and the height of a figure of its own, in inches; None where nobody chose."""
    if size is None:
        return None
    if ax is not None:
        raise ValueError("size must be left out where ax is given: it is that of a figure of its own.")
    expected = "(width, height) in inches, each from 1 to 100"
    if isinstance(size, str) or not isinstance(size, Sequence) or len(size) != 2:
        raise wrong_type("size", expected, size)
    width, height = (check_float(f"size[{index}]", side) for index, side in enumerate(size))
    if not (1 <= width <= 100 and 1 <= height <= 100):
        raise wrong_value("size", expected, size)
    return width, height


@dataclass(kw_only=True)
class Picture:
    ax: Axes
    own: bool  # whether the axes stand alone on a figure of ours
    sized: bool  # whether the user gave the figure's size
    appearance: Appearance
    heading: str | None  # the title's first line, in place of the usual one
    entries: list[Any] = field(default_factory=list)  # of the legend

    def set_title(self, usual: str, notes: Sequence[str | None], *, small: bool) -> None:
        """Writes the heading, or the ``usual`` one unless a paper's caption says that, and notes about the data."""
        heading = self.heading
        if heading is None:
            heading = "" if self.own and self.appearance.paper else usual
        lines = "\n".join(text for text in (heading, *notes) if text)
        self.ax.set_title(lines, fontsize=self.appearance.text_size if small else None)

    def finish(self, cameras: Sequence[Camera] = ()) -> None:
        """Draws the legend, and lays a figure of ours out, where the axes stay for all ``cameras``."""
        draw_legend(self.ax, self.entries, self.appearance, outside=self.own)
        if self.own:
            # A box fills the height that it is given; below it is room for the legend, whatever the size.
            box = self.ax.name == "3d"
            grow = not cameras and (box or not self.sized)
            settle(self.ax.figure, cameras, grow=grow, trim=not self.sized and not box)
            if self.sized and not box:
                space_numbers(self.ax.figure)


@contextlib.contextmanager
def begin_page(
    look: Mapping[str, Any],
    ax: Axes | None,
    usual: Callable[[Appearance], tuple[float, float]],
    projection: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Checks the options that all pictures have; yields what a ``Picture`` needs, on ``ax`` or a figure of its own."""
    if ax is not None and not hasattr(ax, "transData"):
        raise wrong_type("ax", "matplotlib axes or None", ax)
    if ax is not None and projection is not None and ax.name != projection:
        raise wrong_type("ax", "three-dimensional axes (add_subplot(projection='3d'))", ax)
    appearance = appearance_of(look, ax)
    size = check_size(look.get("size"), ax)
    if (heading := look.get("title")) is not None:
        lines = check_instance("title", heading, str, "a str or None").split("\n")
        heading = "\n".join(plain(line, 240) for line in lines)
    with appearance.applied():
        drawn = ax
        if drawn is None:
            drawn = new_figure(size or usual(appearance), "compressed").add_subplot(projection=projection)
        yield {"ax": drawn, "own": ax is None, "sized": bool(size), "appearance": appearance, "heading": heading}


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
        path: a file that ends in .png, .pdf, .svg or .pgf, or a binary stream, which gets PNG. PGF is
            input for LaTeX, in the fonts of its document; it needs an installed LaTeX, and has its images beside it.
        dpi: dots per inch of PNG, and of the parts of the others that are images.
        description: what the picture shows, for people who cannot see it; it becomes part of the file, but of PGF.

    Raises:
        TypeError: ``figure`` has no picture, ``description`` is no text, or ``path`` is neither a path nor a stream.
        ValueError: the name ends in anything else, LaTeX is missing, or the figure is too small for its axes.
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
    if kind not in (*_METADATA, "pgf"):
        raise wrong_value("path", "a name that ends in .png, .pdf, .svg or .pgf", str(path))
    check_can_be_file("path", target)
    if kind == "pgf":
        _save_for_latex(whole, target, dpi)
        return
    image = io.BytesIO()
    _save(whole, image, kind, dpi, description)
    write_bytes(target, image.getvalue())


def check_png(name: str, path: str | os.PathLike[str]) -> Path:
    target = check_path(name, path)
    if target.suffix.lower() != ".png":
        raise wrong_value(name, "a name that ends in .png, because a hero is made of pixels", str(path))
    check_can_be_file(name, target)
    check_replaceable(target)
    return target


def figure_pixels(figure: Axes | FigureBase, dpi: int = 100) -> UInt8[np.ndarray, "height width 3"]:
    """Returns a picture as red, green and blue, shape (height, width, 3).

    Args:
        figure: a figure, or the axes a plot function returned.
        dpi: dots per inch.

    Raises:
        TypeError: ``figure`` has no picture.
    """
    from PIL import Image

    whole, image = _figure_of(figure), io.BytesIO()
    with room_for_axes(whole):
        whole.savefig(image, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
    return np.array(Image.open(image).convert("RGB"))


def _save(figure: Figure, file: BinaryIO, kind: str, dpi: int, description: str | None) -> None:
    import matplotlib

    metadata = _METADATA[kind] | ({} if description is None else {_DESCRIPTION[kind]: description})
    # The salt makes the names inside an SVG the same each time; fonts of type 42 stay text in a PDF.
    with matplotlib.rc_context({"svg.hashsalt": "summary-landscape", "pdf.fonttype": 42}):
        with room_for_axes(figure):
            figure.savefig(file, format=kind, dpi=dpi, metadata=metadata)


def _save_for_latex(figure: Figure, target: Path, dpi: int) -> None:
    """Writes PGF, and beside it its images, which it names after itself."""
    import matplotlib

    system = next(filter(shutil.which, ("xelatex", "lualatex", "pdflatex")), None)
    if system is None:
        raise ValueError(
            "path must end in .png, .pdf or .svg where there is no LaTeX, which is asked how large the texts of a .pgf "
            f"are, but got {str(target)!r}; install xelatex, lualatex or pdflatex, or save .pdf."
        )
    folder = TemporaryFolder("landscape-pgf-")
    try:
        with matplotlib.rc_context({"pgf.texsystem": system, "pgf.rcfonts": False}), room_for_axes(figure):
            figure.savefig(folder.path / target.name, format="pgf", dpi=dpi)
        for file in sorted(folder.path.iterdir(), key=lambda file: file.name == target.name):
            write_bytes(target.parent / file.name, file.read_bytes())
    finally:
        folder.remove()


def _figure_of(figure: Any) -> Figure:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    root = figure if isinstance(figure, Artist) else None
    while root is not None and not isinstance(root, Figure) and root.figure is not root:
        root = root.figure
    if isinstance(root, Figure):
        return root
    raise wrong_type("figure", "a matplotlib figure or axes that lie on one", figure)
