"""Landscape: what a user holds in a notebook."""

from __future__ import annotations

import copy
import importlib.util
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from collectors.files.remote_path import RemotePath

from .file.checks import PointStatus
from .file.data import ConvergenceData, LandscapeData, TrajectoryData
from .file.landscape_file import path_of, read_landscape

if TYPE_CHECKING:
    from typing import Unpack

    import xarray
    from jaxtyping import Float64, UInt8
    from matplotlib.axes import Axes

    from .figures import Look
    from .survey.survey import SurveyReport


class Drawing:
    """What ``Landscape`` has of ``figures``, which only a picture loads.

    All take the options of ``figures.Look``: metric, levels, scale, colormap, trajectory, clip, theme, style.
    """

    def plot_contour(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws filled contours with the trajectory and the convergence point; see ``figures.plot_contour``."""
        from .figures import plot_contour

        return plot_contour(self._self, ax, **look)

    def plot_contour_lines(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws contour lines alone; see ``figures.plot_contour_lines``."""
        from .figures import plot_contour_lines

        return plot_contour_lines(self._self, ax, **look)

    def plot_heatmap(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws every point as its cell; see ``figures.plot_heatmap``."""
        from .figures import plot_heatmap

        return plot_heatmap(self._self, ax, **look)

    def plot_surface(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws the surface in three dimensions; see ``figures.plot_surface``."""
        from .figures import plot_surface

        return plot_surface(self._self, ax, **look)

    def plot_profile(self, ax: Axes | None = None, *, others: str | Sequence[str] = (), **look: Unpack[Look]) -> Axes:
        """Draws a line's loss, and other metrics on a second axis; see ``figures.plot_profile``."""
        from .figures import plot_profile

        return plot_profile(self._self, ax, others=others, **look)

    def plot_difference(self, other: Landscape, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws this landscape minus another one on the same grid; see ``figures.plot_difference``."""
        from .figures import plot_difference

        return plot_difference(self._self, other, ax, **look)

    def save_animation(
        self, path: str | os.PathLike[str], kind: str = "contour", *, seconds: float = 6.0, **look: Unpack[Look]
    ) -> Path:
        """Writes the optimizer's walk over the plane as GIF or MP4; see ``figures.save_animation``."""
        from .figures import save_animation

        return save_animation(self._self, path, kind, seconds=seconds, **look)

    @property
    def _self(self) -> Landscape:
        return cast("Landscape", cast(Any, self))


class Landscape(Drawing):
    """A measured loss landscape; everything it hands out is read-only.

    Rows are y and columns are x: ``loss[j, i]`` was measured at ``(x[i], y[j])``. A line has no y, and its arrays
    have the shape (nx,).

    Args:
        data: what was measured.
        path: the file it lies in, if any.
        report: what measuring it cost, if it was measured just now.
    """

    def __init__(
        self,
        data: LandscapeData,
        path: str | os.PathLike[str] | RemotePath | None = None,
        report: SurveyReport | None = None,
    ) -> None:
        data.validate()
        self._data = copy.deepcopy(data)
        _freeze(self._data)
        self.path = None if path is None else path_of(path)
        self.report = report

    @classmethod
    def load(cls, path: str | os.PathLike[str] | RemotePath) -> Landscape:
        """Reads a landscape file into memory; the file is closed again and never changed.

        Args:
            path: of the file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``.

        Raises:
            LandscapeNotFoundError: there is no such file.
            LandscapeLockedError: another program has it open for writing.
            LandscapeDamagedError: it is truncated or no HDF5 file.
            LandscapeFormatError: it is another program's, or of a newer version.
        """
        place = path_of(path)
        return cls(read_landscape(place), place)

    @classmethod
    def import_file(
        cls,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        loss: str | None = None,
        axis_order: str | None = None,
    ) -> Landscape:
        """Reads the landscape file of another program; see ``foreign_files.import_landscape``."""
        from .exchange import import_landscape

        return cls(import_landscape(path, format, loss=loss, axis_order=axis_order))

    @property
    def x(self) -> Float64[np.ndarray, " nx"]:
        """Coordinates along the first direction, shape (nx,), in units of the direction."""
        return self._data.x

    @property
    def y(self) -> Float64[np.ndarray, " ny"] | None:
        """Coordinates along the second direction, shape (ny,); None for a line."""
        return self._data.y

    @property
    def loss(self) -> Float64[np.ndarray, "*grid"]:
        """The loss, shape (ny, nx); NaN while pending or failed, predicted where ``status`` says interpolated."""
        return self._data.metrics["loss"]

    @property
    def metrics(self) -> Mapping[str, Float64[np.ndarray, "*grid"]]:
        """Everything that was measured, by name, each of shape (ny, nx); "loss" is among them."""
        return MappingProxyType(self._data.metrics)

    @property
    def status(self) -> UInt8[np.ndarray, "*grid"]:
        """``PointStatus`` of every point, shape (ny, nx): 0 pending, 1 measured, 2 interpolated, 3 failed."""
        return self._data.status

    @property
    def status_counts(self) -> dict[PointStatus, int]:
        """How many points have each status."""
        return self._data.counts()

    @property
    def trajectory(self) -> TrajectoryData | None:
        """The checkpoints' path: coordinates, own and projected losses, distance from the plane."""
        return self._data.trajectory

    @property
    def convergence(self) -> ConvergenceData:
        """The origin, measured by itself because no grid point need lie there."""
        return self._data.convergence

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Where the landscape comes from: decomposition, intervals, samples, seed, plan, versions, ..."""
        return MappingProxyType(self._data.attributes)

    @property
    def errors(self) -> Mapping[str, str]:
        """Tracebacks of what failed, by place."""
        return MappingProxyType(self._data.errors)

    @property
    def explained_variance_ratio(self) -> Float64[np.ndarray, " d"] | None:
        """The share of the path's variance along each direction; None where there is no decomposition."""
        return self._data.directions.explained_variance_ratio

    @property
    def cosine(self) -> float | None:
        """The cosine between the two directions; None for a line."""
        return self._data.directions.cosine

    @property
    def complete(self) -> bool:
        """Whether nothing is pending."""
        return self._data.complete

    @property
    def loss_range(self) -> tuple[float, float]:
        """The smallest and the largest finite loss of the grid; NaN where there is none."""
        finite = self.loss[np.isfinite(self.loss)]
        return (float(finite.min()), float(finite.max())) if len(finite) else (float("nan"), float("nan"))

    def __getitem__(self, name: str) -> Float64[np.ndarray, "*grid"]:
        """Returns a metric by name, shape (ny, nx)."""
        if name not in self._data.metrics:
            raise KeyError(f"the landscape has no metric {name!r}; it has {sorted(self._data.metrics)}")
        return self._data.metrics[name]

    def to_xarray(self) -> xarray.Dataset:
        """Returns the grid as an xarray Dataset with the coordinates x and y.

        Raises:
            ImportError: xarray is not installed.
        """
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'summary-landscape[xarray]'") from error
        dimensions = ("x",) if self.y is None else ("y", "x")
        coordinates = {"x": self.x} if self.y is None else {"x": self.x, "y": self.y}
        values = {**self._data.metrics, "status": self.status}
        return xarray.Dataset(
            {name: (dimensions, np.array(array)) for name, array in values.items()},
            coords=coordinates,
            attrs=dict(self.attributes),
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the landscape as a landscape file, which ``load`` reads, and returns its path.

        Raises:
            LandscapeLockedError: a survey is writing that file.
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
        """
        from .file.saving import save_landscape

        return save_landscape(path, self._data, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        metric: str | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Writes the landscape as another program's file and returns the paths; see ``exports.export_landscape``."""
        from .exchange import export_landscape

        return export_landscape(self, path, format, metric=metric, overwrite=overwrite)

    def summary_values(self) -> dict[str, NDArray[Any]]:
        """Returns what a SummaryRecord shows of a landscape.

        Returns:
            "image": the contour (a line's profile), uint8 of shape (1, 3, height, width); "tensor": the loss.
        """
        from .figures import figure_pixels

        pixels = figure_pixels(self.plot_profile() if self.y is None else self.plot_contour())
        return {"image": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]), "tensor": np.array(self.loss)}

    def __repr__(self) -> str:
        shape = " x ".join(str(len(axis)) for axis in (self.x, self.y) if axis is not None)
        low, high = self.loss_range
        parts = [f"{self.attributes.get('decomposition', 'unknown')}, {shape} points", f"loss {low:.4g} to {high:.4g}"]
        if self.explained_variance_ratio is not None:
            parts.append(f"{100 * float(self.explained_variance_ratio.sum()):.1f} % of the variance explained")
        counts = self.status_counts
        if counts[PointStatus.INTERPOLATED]:
            parts.append(f"{counts[PointStatus.INTERPOLATED]} of {self.status.size} points interpolated")
        if not self.complete:
            parts.append(f"{counts[PointStatus.MEASURED]} of {self.status.size} points measured")
        return f"Landscape({'; '.join(parts)})"

    def view(self, path: str | os.PathLike[str] | None = None, *, size: str = "full", show: bool = True) -> Path:
        """Writes the landscape as an interactive page, opens it in the browser, and returns its path.

        Args:
            path: a file that ends in .html; None writes a temporary one.
            size: "full" (one file) or "small" (the plotly script lies beside the page).
            show: whether the page is opened.

        Raises:
            ImportError: plotly is not installed.
            OSError: the page cannot be written.
        """
        from .interactive.page import view

        return view(self, path, size=size, show=show)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if importlib.util.find_spec("plotly") is None:
            return {}
        from .interactive.notebook import MIME_TYPE, notebook_figure

        figure = notebook_figure(self)
        return {} if figure is None else {MIME_TYPE: figure}

    def _repr_png_(self) -> bytes:
        from .figures import save_figure

        image = io.BytesIO()
        save_figure(self.plot_profile() if self.y is None else self.plot_contour(), image, dpi=120)
        return image.getvalue()


def _freeze(data: LandscapeData) -> None:
    arrays = [data.x, data.y, data.status, data.directions.norms, data.directions.explained_variance_ratio]
    arrays += data.metrics.values()
    if data.trajectory is not None:
        for value in vars(data.trajectory).values():
            arrays += value.values() if isinstance(value, dict) else [value]
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
