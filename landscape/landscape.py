"""Landscape: what users hold in a notebook, with its figures, exports and page."""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from collectors.files.remote_path import RemotePath

from . import figures
from .figures.texts import kind_text, printable
from .file.checks import PointStatus
from .file.data import LandscapeData
from .file.landscape_file import path_of, read_landscape
from .shares import percentages

if TYPE_CHECKING:
    from typing import Unpack

    import xarray
    from jaxtyping import Float64
    from matplotlib.axes import Axes

    from .figures import Look
    from .survey.survey import SurveyReport


_MAPPINGS = ("metrics", "errors", "attributes")


class Landscape(LandscapeData):
    """A measured loss landscape; everything it hands out is read-only.

    Rows are y and columns are x: ``loss[j, i]`` was measured at ``(x[i], y[j])``. A line has no y, and its arrays
    have the shape (nx,). The methods ``plot_...`` take the options of ``figures.Look``: metric, levels, scale,
    colormap, trajectory, clip, theme, style, aspect.

    Args:
        data: what was measured.
        path: the file it lies in; None for the one that ``data`` was read from, if any.
        report: what measuring it cost, if it was measured just now.

    Attributes:
        x: coordinates along the first direction, shape (nx,), in units of the direction.
        y: coordinates along the second direction, shape (ny,); None for a line.
        metrics: everything that was measured, by name, each of shape (ny, nx); "loss" is among them.
        status: ``PointStatus`` of every point, shape (ny, nx): 0 pending, 1 measured, 2 interpolated, 3 failed.
        directions: lengths and explained variance of the directions.
        origin: the origin: which network it is, and what was measured there; the grid may have no point there.
        checkpoints: checkpoints of runs, and networks of no run: coordinates, own and projected losses, distance from
            the plane; or None.
        errors: tracebacks of what failed, by place.
        attributes: where the landscape comes from: decomposition, intervals, samples, seed, plan, versions, ...
        path: the file it lies in, or None.
        report: what measuring it cost, or None.
    """

    metrics: Mapping[str, Float64[np.ndarray, "*grid"]]  # type: ignore[assignment]
    errors: Mapping[str, str]  # type: ignore[assignment]
    attributes: Mapping[str, Any]  # type: ignore[assignment]
    report: SurveyReport | None

    def __init__(
        self,
        data: LandscapeData,
        path: str | os.PathLike[str] | RemotePath | None = None,
        report: SurveyReport | None = None,
    ) -> None:
        data.validate()
        contents = {name: value for name, value in _contents(data).items() if name not in ("path", "report")}
        place = data.path if path is None else path_of(path)
        self.__setstate__({**copy.deepcopy(contents), "path": place, "report": report})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Landscape is read-only, so its {name!r} cannot be set.")

    def __getstate__(self) -> dict[str, Any]:
        return _contents(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in _MAPPINGS:
            vars(self)[name] = MappingProxyType(state[name])
        for array in _arrays(self):
            array.flags.writeable = False

    @classmethod
    def load(cls, path: str | os.PathLike[str] | RemotePath) -> Landscape:
        """Reads a landscape file into memory; the file is closed again and never changed.

        Args:
            path: of the file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``.

        Raises:
            LandscapeNotFoundError: there is no such file.
            LandscapeLockedError: another program has it open for writing.
            LandscapeDamagedError: it is truncated or no HDF5 file.
            LandscapeFormatError: it is another program's, or another version's with another format.
        """
        return cls(read_landscape(path))

    @classmethod
    def import_file(
        cls,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        loss: str | None = None,
        axis_order: str | None = None,
    ) -> Landscape:
        """Reads the landscape file of another program; see ``exchange.import_landscape``."""
        from .exchange import import_landscape

        return cls(import_landscape(path, format, loss=loss, axis_order=axis_order))

    def plot_contour(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws filled contours with the paths of runs, networks and the origin; see ``figures.plot_contour``."""
        return figures.plot_contour(self, ax, **look)

    def plot_contour_lines(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws contour lines alone; see ``figures.plot_contour_lines``."""
        return figures.plot_contour_lines(self, ax, **look)

    def plot_heatmap(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws every point as its cell; see ``figures.plot_heatmap``."""
        return figures.plot_heatmap(self, ax, **look)

    def plot_surface(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws the surface in three dimensions; see ``figures.plot_surface``."""
        return figures.plot_surface(self, ax, **look)

    def plot_profile(self, ax: Axes | None = None, *, others: str | Sequence[str] = (), **look: Unpack[Look]) -> Axes:
        """Draws a line's loss, and other metrics on a second axis; see ``figures.plot_profile``."""
        return figures.plot_profile(self, ax, others=others, **look)

    def plot_difference(self, other: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws this landscape minus another one on the same grid; see ``figures.plot_difference``."""
        return figures.plot_difference(self, other, ax, **look)

    def save_animation(
        self, path: str | os.PathLike[str], kind: str = "contour", *, seconds: float = 6.0, **look: Unpack[Look]
    ) -> Path:
        """Writes the optimizer's walk over the plane as GIF or MP4; see ``figures.save_animation``."""
        return figures.save_animation(self, path, kind, seconds=seconds, **look)

    def to_xarray(self) -> xarray.Dataset:
        """Returns the grid as an xarray Dataset with the coordinates x and y.

        Its attributes are those of the landscape; what is no number or text is JSON (``json.loads``), so that
        ``to_netcdf`` can write the Dataset.

        Raises:
            ImportError: xarray is not installed.
        """
        from .exchange.arrays import grid_dataset

        try:
            return grid_dataset(self)
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'summary-landscape[xarray]'") from error

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the landscape as a landscape file, which ``load`` reads, and returns its path.

        Raises:
            LandscapeLockedError: a survey is writing that file.
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
            NotADirectoryError: the file's directory does not exist.
        """
        from .file.saving import save_landscape

        return save_landscape(path, self, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        metric: str | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Writes the landscape as another program's file and returns the paths; see ``exchange.export_landscape``."""
        from .exchange import export_landscape

        return export_landscape(self, path, format, metric=metric, overwrite=overwrite)

    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        size: str = "full",
        aspect: str = "equal",
        show: bool = True,
    ) -> Path:
        """Writes the landscape as an interactive page, opens it in the browser, and returns its path.

        Args:
            path: a file that ends in .html; None writes a temporary one.
            size: "full" (one file) or "small" (the plotly script lies beside the page).
            aspect: how planes are drawn at first: "equal" (to scale) or "fill".
            show: whether the page is opened.

        Raises:
            ImportError: plotly is not installed.
            OSError: the page cannot be written.
        """
        from .interactive import save_page

        if path is None:
            # The browser reads it after this process may have ended, so nobody can remove it here.
            path = Path(tempfile.mkdtemp(prefix="landscape-")) / "landscape.html"
        page = save_page(self, path, size=size, aspect=aspect)
        if show:
            webbrowser.open(page.resolve().as_uri())
        return page

    def summary_values(self) -> dict[str, NDArray[Any]]:
        """Returns what a SummaryRecord shows of a landscape.

        Returns:
            "image": the contour (a line's profile), uint8 of shape (1, 3, height, width); "tensor": the loss.
        """
        pixels = figures.figure_pixels(self.plot_profile() if self.y is None else self.plot_contour())
        return {"image": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]), "tensor": np.array(self.loss)}

    def __repr__(self) -> str:
        shape = " x ".join(str(len(axis)) for axis in (self.x, self.y) if axis is not None)
        low, high = self.loss_range
        parts = [f"{printable(kind_text(self), 48)}, {shape} points", f"loss {low:.4g} to {high:.4g}"]
        if self.explained_variance_ratio is not None:
            share = percentages([self.explained_variance_ratio.sum()])[0]
            parts.append(f"{share} of the variance explained")
        counts = self.status_counts
        if counts[PointStatus.INTERPOLATED]:
            parts.append(f"{counts[PointStatus.INTERPOLATED]} of {self.status.size} points interpolated")
        if not self.complete:
            parts.append(f"{counts[PointStatus.MEASURED]} of {self.status.size} points measured")
        return f"Landscape({'; '.join(parts)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if importlib.util.find_spec("plotly") is None:
            return {}
        from .interactive.notebook import MIME_TYPE, notebook_figure

        figure = notebook_figure(self)
        return {} if figure is None else {MIME_TYPE: figure}

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        figures.save_figure(self.plot_profile() if self.y is None else self.plot_contour(), image, dpi=120)
        return image.getvalue()


def _contents(data: LandscapeData) -> dict[str, Any]:
    """Returns a landscape's attributes as they can be copied and pickled, which a ``MappingProxyType`` cannot be."""
    return {name: dict(value) if name in _MAPPINGS else value for name, value in vars(data).items()}


def _arrays(data: LandscapeData) -> list[NDArray[Any]]:
    arrays = [data.x, data.y, data.status, data.directions.norms, data.directions.explained_variance_ratio]
    arrays += data.metrics.values()
    if data.checkpoints is not None:
        for value in vars(data.checkpoints).values():
            arrays += value.values() if isinstance(value, dict) else [value]
    return [array for array in arrays if isinstance(array, np.ndarray)]
