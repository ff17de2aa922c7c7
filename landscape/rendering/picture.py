"""A rendered picture with what must be said about it: in a notebook, as pixels, or as a PNG."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectors.files.local_files import check_replaceable, write_bytes
from collectors.files.places import check_can_be_file
from collectors.shapes import UInt8
from collectors.validation import check_path, wrong_value


@dataclass(frozen=True)
class Rendering:
    """A picture of a landscape in three dimensions.

    Attributes:
        pixels: red, green, blue and opacity, shape (height, width, 4).
        title: of the landscape.
        caption: what a reader must know: scale, clipping, what is missing, what was drawn between the points.
        dpi: dots per inch, which a PNG tells to who prints it.
    """

    pixels: UInt8[np.ndarray, "height width 4"]
    title: str
    caption: tuple[str, ...]
    dpi: float

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the picture as PNG and returns its path; the caption is in the file, as the text "Description".

        The same landscape gives the same bytes on the same machine.

        Raises:
            TypeError: ``path`` is no path.
            ValueError: the name does not end in .png.
            FileWriteError: the file cannot be written; what was there is untouched.
        """
        target = check_png("path", path)
        write_bytes(target, self._repr_png_())
        return target

    def _repr_png_(self) -> bytes:
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        words = PngInfo()
        words.add_itxt("Title", self.title)
        words.add_itxt("Description", "\n".join(self.caption))
        words.add_itxt("Software", "summary-landscape")
        file = io.BytesIO()
        image = Image.fromarray(self.pixels)
        # More compression takes longer than the drawing and makes the file hardly smaller.
        image.save(file, "PNG", pnginfo=words, dpi=(self.dpi, self.dpi), compress_level=4)
        return file.getvalue()


def check_png(name: str, path: str | os.PathLike[str]) -> Path:
    target = check_path(name, path)
    if target.suffix.lower() != ".png":
        raise wrong_value(name, "a name that ends in .png, because a hero is made of pixels", str(path))
    check_can_be_file(name, target)
    check_replaceable(target)
    return target
