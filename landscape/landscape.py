"""Landscape: what users hold in a notebook, with its figures, exports and page."""

from __future__ import annotations

import importlib.util
import io
import os
import tempfile
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.files.remote_path import RemotePath
from collectors.shapes import Float64
from collectors.validation import check_choice

from . import figures
from .captions import difference_caption, write_caption
from .facts import one_line
from .figures import Look
from .figures.kinds import KINDS, OF_LANDSCAPES, names_of, usual_picture
from .grid.data import LandscapeData
from .grid.landscape_file import read_landscape, save_landscape
from .grid.samples import KeptLosses
from .grid.value_at import ValueAt, value_at
from .record.record import ReadOnly
from .record.whole_file import path_of
from .topology.topology import Topology, find_topology

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

    from .drawing.camera import CameraChoice
    from .grid.forecast import SurveyReport


class Landscape(ReadOnly, LandscapeData):
    """A measured loss landscape; everything it hands out is read-only.

    Rows are y and columns are x: ``loss[j, i]`` was measured at ``(x[i], y[j])``. A line has no y, and its arrays
    have the shape (nx,). The methods ``plot_...`` and ``save_animation`` are the functions of ``figures`` of the same
    name, and take the options of ``figures.Look``: metric, levels, scale, colormap, trajectory, clip, theme, style,
    aspect, title, size, camera, topology; ``plot`` draws any kind. ``caption(kind, **look)`` returns what a paper says
    under such a picture, and what it shows; ``caption_difference`` takes the arguments of ``plot_difference``.

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
        kept_samples: the losses of samples by the data set's name, where they were kept; ``samples`` gives one.
        path: the file it lies in, or None.
        report: what measuring it cost, or None.
    """

    metrics: Mapping[str, Float64[np.ndarray, "*grid"]]  # type: ignore[assignment]
    errors: Mapping[str, str]  # type: ignore[assignment]
    attributes: Mapping[str, Any]  # type: ignore[assignment]
    kept_samples: Mapping[str, KeptLosses]  # type: ignore[assignment]
    report: SurveyReport | None
    _mappings = ("metrics", "errors", "attributes", "kept_samples")

    def __init__(
        self,
        data: LandscapeData,
        path: str | os.PathLike[str] | RemotePath | None = None,
        report: SurveyReport | None = None,
    ) -> None:
        data.validate()
        self._take(data, path=data.path if path is None else path_of(path), report=report)

    def _numbers(self) -> Iterable[NDArray[Any]]:
        arrays = [self.x, self.y, self.status, self.directions.norms, self.directions.explained_variance_ratio]
        arrays += self.metrics.values()
        if self.checkpoints is not None:
            for value in vars(self.checkpoints).values():
                arrays += value.values() if isinstance(value, dict) else [value]
        return [array for array in arrays if isinstance(array, np.ndarray)]

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

    def at(self, x: float, y: float | None = None, metric: str = "loss") -> ValueAt:
        """Returns a metric at any place within the grid, and whether it was measured there.

        At a measured point of the grid it is the measurement. Elsewhere it lies between the four points around the
        place (two on a line) and is interpolated linearly in each direction, so that it never leaves their range;
        ``Measure.points`` measures there instead.

        Args:
            x: first coordinate.
            y: second coordinate; left out on a line.
            metric: which one.

        Raises:
            KeyError: the landscape has no such metric.
            TypeError: a coordinate is no number.
            ValueError: the place lies outside the grid, or there is not one coordinate for each axis.
        """
        return value_at(self, x, y, metric)

    def topology(self, metric: str = "loss", persistence: float | None = None) -> Topology:
        """Returns the minima of the measured grid, the saddles between them, and how deep each minimum is.

        They are minima of the grid in this plane, not of the network: a network's minimum needs all directions. A point
        of a plane has eight neighbours, one of a line two; of neighbours with equal values, the one with the smaller
        index is the lower. Points without a finite value are left out; the result says how many.

        Args:
            metric: whose minima.
            persistence: a minimum counts if one must climb by more than this to reach a lower one. None: by more than
                twice the error of the values around it, so that noise and interpolation make no minima. The error is
                the largest, among the points of its basin and those around, of the standard error plus adaptive
                sampling's estimate (of the loss) plus the rounding of the precision.

        Raises:
            KeyError: the landscape has no such metric.
            TypeError: ``persistence`` is no number.
            ValueError: ``persistence`` is negative or not finite.

        Source: Edelsbrunner, Letscher and Zomorodian 2002.
        """
        return find_topology(self, metric, persistence)

    def samples(self, name: str | None = None) -> KeptLosses:
        """Returns the loss of each sample at every measured point, as ``keep_samples=True`` kept it.

        Of a landscape that was loaded, the losses are read from its file when they are asked for, and not before:
        ``samples.at(row, column)`` reads one point, ``samples.losses()`` all of them.

        Args:
            name: of the data set; None takes the main one.

        Raises:
            KeyError: there is no such data set.
            LandscapeError: the losses of samples were not kept.
        """
        if not self.kept_samples:
            raise LandscapeError(
                "the losses of samples were not kept. Measure the landscape with keep_samples=True (--keep-samples on "
                "the command line) to another file, or with overwrite=True."
            )
        chosen = next(iter(self.kept_samples)) if name is None else name
        if chosen not in self.kept_samples:
            raise KeyError(
                f"no losses of samples of a data set {name!r} were kept; of {list(self.kept_samples)} they were"
            )
        return self.kept_samples[chosen]

    def plot(self, kind: str | None = None, *others: LandscapeData, **options: Any) -> Any:
        """Draws a picture of any kind, by the names and with the options of ``landscape plot``.

        ``landscape.plot("heatmap", theme="dark")``, ``first.plot("difference", second)``,
        ``landscape.plot(metric=["loss", "loss@test"])``, ``landscape.plot("animation", path="walk.gif", seconds=3)``.

        Args:
            kind: "contour", "lines", "heatmap", "surface", "hero", "profile", "barriers", "difference", "multiples",
                "uncertainty", "animation", "persistence" or "merge_tree"; None chooses as the command does.
            *others: further landscapes, of barriers, a difference, multiples or an animation.
            **options: those of ``figures.Look`` and of the kind. ``metric`` may be several names, of a profile, of
                multiples and of a difference, which subtracts the second from the first; ``title`` several texts, of
                multiples; ``over`` is what an animation walks over, or multiples show; ``path`` is an animation's file.

        Returns:
            The axes; a list of them for multiples and uncertainty, a ``Rendering`` of a hero, and an animation's path.

        Raises:
            KeyError: a landscape has no such metric.
            TypeError: an option is unknown or has the wrong type.
            ValueError: there is no such kind, an option belongs to another one, or has a wrong value.
        """
        objects = [self, *others]
        chosen = usual_picture(objects, names_of(options.get("metric"))) if kind is None else kind
        return KINDS[check_choice("kind", chosen, OF_LANDSCAPES)](objects, options)

    plot_contour = figures.plot_contour
    plot_contour_lines = figures.plot_contour_lines
    plot_heatmap = figures.plot_heatmap
    plot_surface = figures.plot_surface
    plot_hero = figures.plot_hero
    plot_profile = figures.plot_profile
    plot_uncertainty = figures.plot_uncertainty
    plot_persistence = figures.plot_persistence
    plot_merge_tree = figures.plot_merge_tree
    save_animation = figures.save_animation
    caption = write_caption
    caption_difference = difference_caption

    def plot_difference(
        self,
        other: LandscapeData | str,
        minus: str | None = None,
        ax: Axes | None = None,
        *,
        significance: float | None = 2.0,
        **look: Unpack[Look],
    ) -> Axes:
        """Draws this landscape minus another one on the same grid, or one of its metrics minus another.

        ``landscape.plot_difference("loss@test", "loss")`` is the gap of generalisation; see
        ``figures.plot_difference``.
        """
        return figures.plot_difference(self, other, minus, ax, significance=significance, **look)

    def plot_multiples(self, metrics: Sequence[str], kind: str | None = None, **look: Unpack[Look]) -> list[Axes]:
        """Draws several metrics side by side, those of one quantity on one scale; see ``figures.plot_multiples``."""
        return figures.plot_multiples(self, kind=kind, metrics=metrics, **look)

    def to_xarray(self, *, samples: str | bool = False) -> xarray.Dataset:
        """Returns the grid as an xarray Dataset with the coordinates x and y.

        Its attributes are those of the landscape; what is no number or text is JSON (``json.loads``), so that
        ``to_netcdf`` can write the Dataset.

        Args:
            samples: whether the loss of each sample is in it too, read whole, as ``sample_loss`` of dimensions (y, x,
                sample) with the coordinates ``target`` and ``weight`` where there are any: True for the main data set,
                or the name of another one.

        Raises:
            ImportError: xarray is not installed.
            KeyError: there is no such data set.
            LandscapeError: the losses of samples were not kept.
        """
        from .exchange.arrays import grid_dataset, with_samples

        try:
            dataset = grid_dataset(self)
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'summary-landscape[xarray]'") from error
        if isinstance(samples, bool) and not samples:
            return dataset
        return with_samples(dataset, self, self.samples(None if isinstance(samples, bool) else samples))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the landscape as a landscape file, which ``load`` reads, and returns its path.

        Raises:
            LandscapeLockedError: a survey is writing that file.
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
            NotADirectoryError: the file's directory does not exist.
        """
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
        camera: CameraChoice | None = None,
        show: bool = True,
    ) -> Path:
        """Writes the landscape as an interactive page, opens it in the browser, and returns its path.

        Args:
            path: a file that ends in .html; None writes a temporary one.
            size: "full" (one file) or "small" (the plotly script lies beside the page).
            aspect: how planes are drawn at first: "equal" (to scale) or "fill".
            camera: from where the surface is seen at first, such as "low", "auto" or (azimuth, elevation) in degrees;
                see ``figures.Look``.
            show: whether the page is opened.

        Raises:
            ImportError: plotly is not installed.
            OSError: the page cannot be written.
        """
        from .interactive import save_page

        if path is None:
            # The browser reads it after this process may have ended, so nobody can remove it here.
            path = Path(tempfile.mkdtemp(prefix="landscape-")) / "landscape.html"
        page = save_page(self, path, size=size, aspect=aspect, camera=camera)
        if show:
            webbrowser.open(page.resolve().as_uri())
        return page

    def summary_values(self) -> dict[str, NDArray[Any]]:
        """Returns what a SummaryRecord shows of a landscape.

        Returns:
            "image": the contour (a line's profile), uint8 of shape (1, 3, height, width); "tensor": the loss.
        """
        pixels = figures.figure_pixels(self.plot())
        return {"image": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]), "tensor": np.array(self.loss)}

    def __repr__(self) -> str:
        return f"Landscape({one_line(self)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if importlib.util.find_spec("plotly") is None:
            return {}
        from .interactive.notebook import MIME_TYPE, notebook_figure

        figure = notebook_figure(self)
        return {} if figure is None else {MIME_TYPE: figure}

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        figures.save_figure(self.plot(), image, dpi=120)
        return image.getvalue()
