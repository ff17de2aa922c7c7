"""What all pictures share, of landscapes and of curvature: checks, the scale, axes, colour bar, title and legend."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, Int64, UInt8
from collectors.validation import check_bool

from ..grid.data import LandscapeData
from ..roles import CHECKPOINT
from ..sampling.grids import coarse_values
from ..scales.choosing import choose_scale
from ..scales.frame import Frame, choose_frame
from ..scales.landscape_scale import joint_scale, known
from ..scales.scale import EXTREME, Scale
from ..topology.topology import Topology, wanted_topology
from . import texts as words
from .appearance import DIVERGING, PAPER_WIDTH, Appearance, find_colormap
from .camera import Camera, check_camera
from .canvas import Picture, begin_page
from .look import MARK_MINIMA, Axes, CurvatureLook, Look, check_dimensions, check_look
from .path import BAR_HEIGHT, Marked, Times, dots_handle, draw_time_bar, path_times, run_names, sized

if TYPE_CHECKING:
    from matplotlib.colors import Colormap


_MOST_LINES = 3
OWN_VALUES_WIDTH = 48
"""Letters in a line of the legend's sentence on own values, so that the other entries keep their columns."""
_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix (GGN)"}
_SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_Page = TypeVar("_Page", bound=Picture)


@dataclass(frozen=True)
class Kind:
    function: str  # the name of its public function
    draw: Callable[[Sheet], None]
    plane: bool = True  # whether it draws planes, or lines
    count: int = 12  # about how many lines or ticks it draws by default
    size: tuple[float, float] | None = None  # of an own figure on a screen, in inches; None: the plane's proportions
    paper_height: float = 3.05  # height in inches in the column of a paper
    projection: str | None = None  # "3d", or None
    heights: bool = False  # whether the path has heights of its own, which the scale must hold
    minima: bool = False  # whether it can mark minima and saddles


@dataclass(kw_only=True)
class Sheet(Picture):
    landscape: LandscapeData
    metric: str
    label: str  # of the colour bar or the axis
    values: NDArray[Any]  # as stored, of the grid's shape
    status: NDArray[Any]  # what is known about each point, of the grid's shape
    measured: NDArray[Any]  # the values, NaN where none is known
    coarse: NDArray[Any]  # what coarse cells show at pending points, NaN elsewhere
    scale: Scale
    colors: Colormap
    trajectory: bool
    frame: Frame
    furniture: bool = True  # whether the colour bar and the legend are drawn; several pictures share theirs
    estimates: Sequence[str] = ()  # notes about precision and interpolated points; several pictures have no room
    avoid_path: bool = False  # labels keep clear of the path though it is not drawn: an animation draws it later
    diverging: bool = False  # whether the colours change at zero
    dots: list[Marked] = field(default_factory=list)  # which checkpoints have dots, of each path in the colours of time
    mappable: Any = None  # what the colour bar explains
    camera: Camera | None = None  # from where a surface is seen; None looks for the best view of the path
    topology: Topology | None = None  # minima and saddles to mark, or None
    times: Times | None = None  # what the colours of paths stand for; None where all paths are short
    runs: Sequence[str] = ()  # the names of the runs of all pictures that share a legend
    border: Any = None  # of the part of the plane that is drawn, in the picture's coordinates
    late: list[Callable[[], None]] = field(default_factory=list)  # placed in pixels, so after the axes have moved

    @property
    def plane(self) -> tuple[NDArray[Any], NDArray[Any]]:
        assert self.landscape.y is not None
        return self.landscape.x, self.landscape.y

    @property
    def paths(self) -> list[tuple[int, NDArray[Any]]]:
        """Each run's place among ``runs``, and the rows of its path."""
        found = self.landscape.checkpoints
        return [] if found is None else [(self.runs.index(found.run_name(rows[0])), rows) for rows in found.paths]

    @property
    def share(self) -> float:
        """How much of the height of axes that are not ours a picture to scale uses; so much its colour bar needs."""
        if self.own:
            return 1.0
        self.ax.apply_aspect()
        return min(1.0, self.ax.get_position().height / self.ax.get_position(original=True).height)

    def write_labels(self) -> None:
        for axis, setter in ((0, self.ax.set_xlabel), (1, self.ax.set_ylabel)):
            if axis == 0 or self.landscape.y is not None:
                setter(self.axis_text(axis, narrow=self.appearance.paper))

    def axis_text(self, axis: int, *, narrow: bool) -> str:
        """Returns an axis's label: in lines that have room beside the axis, a short one beside other pictures."""
        geometry = self.frame.geometry
        short = words.short_axis_label(self.landscape, axis, geometry)
        texts = [short, short.split(" (")[0].removeprefix("distance ")]
        if self.furniture and not narrow:
            texts.insert(0, words.axis_label(self.landscape, axis, geometry))
        if self.ax.name == "3d":
            # The edge of a box is short and may lie near the legend.
            return short.replace(" (", "\n(")
        length = (self.ax.bbox.width, self.ax.bbox.height)[axis] * 72 / self.ax.figure.dpi
        letters = max(8, round(length / (0.55 * self.appearance.text_size)))
        for text in texts:
            whole = text.replace(" (", "\n(") if narrow or len(text) > letters else text
            lines = [line for part in whole.split("\n") for line in textwrap.wrap(part, letters, **words.WHOLE_WORDS)]
            if len(lines) <= _MOST_LINES and max(map(len, lines)) <= letters:
                break
        return "\n".join(lines)

    def write_title(self, *notes: str, usual: str | None = None) -> None:
        """Writes the landscape's name or the ``usual`` title, unless a caption gives it, and notes about the data."""
        tight = self.appearance.paper or not self.furniture
        estimates = self.estimates if self.furniture else ()
        notes_below = [words.status_note(self.landscape, self.status), *estimates, *notes, *self.frame.notes]
        if tight and not self.own:
            notes_below = [line for text in notes_below if text for line in text.split(", ")]
        self.set_title(words.title(self.landscape) if usual is None else usual, notes_below, small=tight)

    @property
    def own_values(self) -> str | None:
        """Where a checkpoint's own value is not the one that is drawn at its foot, and why, for the legend."""
        text = words.own_values_note(self.landscape, self.metric, short=self.appearance.paper)
        return None if text is None else "\n".join(words.in_phrases(words.plain(text, 240), OWN_VALUES_WIDTH))

    def mark(self, x: Any, y: Any, label: str, style: dict[str, Any], zorder: float, **more: Any) -> None:
        style = sized(style, self.appearance.factor)
        self.entries += self.ax.plot(x, y, linestyle="none", label=label, zorder=zorder, **style, **more)

    def note_own_values(self) -> None:
        # A difference draws neither value.
        if self.furniture and not self.diverging and (text := self.own_values) is not None:
            from matplotlib.lines import Line2D

            self.entries.append(Line2D([], [], linestyle="none", label=text))

    def write_flat_note(self) -> None:
        look = self.appearance
        text = words.flat_note(self.label, self.scale.low, self.measured)
        box = {"boxstyle": "round", "facecolor": look.page, "alpha": 0.9, "edgecolor": look.soft}
        self.ax.text(
            0.5, 0.93, text, transform=self.ax.transAxes, ha="center", va="center", bbox=box, color=look.ink,
            fontsize=look.small_size, zorder=8,
        )  # fmt: skip

    def write_bar(self, axes: Any, **options: Any) -> Any:
        """Draws the colour bar beside axes, with a tick at each level that has room; returns it or None."""
        if self.mappable is None or self.scale.flat:
            return None
        from matplotlib.contour import ContourSet

        if not isinstance(self.mappable, ContourSet):
            options["extend"] = self.scale.extend
        bar = self.ax.figure.colorbar(self.mappable, ax=axes, **options)
        across = options.get("location") == "bottom"
        length = (self.ax.bbox.width if across else self.ax.bbox.height) * 72 / self.ax.figure.dpi
        low, high = self.scale.forward([self.scale.low, self.scale.high])
        places = (self.scale.forward(self.scale.levels) - low) / (high - low)
        room = (2.6 if across else 1.15) * self.appearance.small_size
        texts = self.scale.spaced_texts(places, room / max(length, 1.0))
        bar.set_ticks(self.scale.levels.tolist(), labels=texts)
        bar.minorticks_off()
        if self.diverging:
            # A value and its negative keep equal strength.
            (bar.ax.set_xlim if across else bar.ax.set_ylim)(*self.scale.ends_with_zero(self.measured))
        text = self.scale.label(self.label)
        narrow = len(text) * 0.55 * self.appearance.text_size > length
        # A difference has the names of two metrics.
        bar.set_label(text.replace(" (", "\n(").replace(" minus ", "\nminus ") if narrow else text)
        bar.outline.set_edgecolor(self.ax.spines["left"].get_edgecolor())
        return bar

    def finish(self, cameras: Sequence[Camera] = ()) -> None:
        """Draws colour bar and legend, then what needs the axes in place, where they stay for all ``cameras``."""
        if self.own and self.frame.bar_below(paper=self.appearance.paper):
            self.write_bar(self.ax, location="bottom", aspect=40)
        else:
            self.write_bar(self.ax, pad=0.02, aspect=20 * max(1.0, 1 / self.frame.ratio), shrink=self.share)
        if self.trajectory and self.times is not None:
            draw_time_bar(self.ax, self.times, [run for run, _ in self.paths], self.appearance)
        self.entries += dots_handle(self.dots, self.appearance.factor)
        super().finish(cameras)
        self.write_late()

    def write_late(self) -> None:
        for write in self.late:
            write()


def draw_picture(kind: Kind, landscape: LandscapeData, ax: Axes | None, look: Look) -> Axes:
    with begin(kind, landscape, ax, look) as sheet:
        kind.draw(sheet)
        sheet.finish()
    return sheet.ax


@contextlib.contextmanager
def begin(kind: Kind, landscape: LandscapeData, ax: Axes | None, look: Look, **more: Any) -> Iterator[Sheet]:
    """Checks the options; yields a sheet with attributes ``more``, whose values and status replace the landscape's."""
    options = check_look(kind.function, look)
    check_dimensions(kind.function, landscape, plane=kind.plane)
    metric = options.get("metric", "loss")
    values, status = more.pop("values", None), more.pop("status", landscape.status)
    values = landscape[metric] if values is None else values
    measured = known(values, status)
    trajectory = check_bool("trajectory", options.get("trajectory", True))
    diverging = more.get("diverging", False)
    scale = shared_scale(kind, [landscape], options, differences=measured if diverging else None)
    colors = find_colormap(options.get("colormap", DIVERGING if diverging else "viridis"))
    frame = choose_frame(landscape, options.get("aspect", "equal"))
    camera = check_camera(options.get("camera"))
    if options.get("camera") is not None and kind.projection != "3d":
        raise ValueError(f"camera must be left out for {kind.function}, which is flat; plot_surface has one.")
    if (wanted := options.get("topology", False)) is not False and (diverging or not kind.minima):
        raise ValueError(f"topology must be left out for {kind.function}: {MARK_MINIMA}.")
    topology = wanted_topology(landscape, metric, wanted)
    # The edge of a box has no room for words.
    label = words.metric_text(landscape, metric) if kind.projection else words.metric_label(landscape, metric)
    notes = words.value_notes(landscape, metric)
    more = {
        "times": path_times([landscape]),
        "runs": run_names([landscape]),
        "label": label,
        "estimates": notes,
        **more,
    }

    def usual(look: Appearance) -> tuple[float, float]:
        size = kind.size or frame.size(paper=look.paper)
        if kind.size and look.paper:
            size = PAPER_WIDTH, kind.paper_height
        return look.fitted(size, BAR_HEIGHT if more["times"] is not None and trajectory else 0.0)

    with begin_page(options, ax, usual, kind.projection) as page:
        found: dict[str, Any] = {**page, **more}
        yield Sheet(
            landscape=landscape, metric=metric, values=values, status=status, measured=measured,
            coarse=coarse_values(values, status), scale=scale, colors=colors, trajectory=trajectory, frame=frame,
            camera=camera, topology=topology, **found,
        )  # fmt: skip


def shared_scale(
    kind: Kind, landscapes: Sequence[LandscapeData], look: Look, metrics: Sequence[str] | None = None,
    differences: NDArray[Any] | None = None,
) -> Scale:  # fmt: skip
    """Returns the user's scale, or one that spans several pictures; that of ``differences`` has zero in its middle."""
    scale, levels, clip = look.get("scale", "auto"), look.get("levels"), look.get("clip")
    if isinstance(scale, Scale):
        if levels is not None or clip is not None:
            raise ValueError("scale is a Scale, which has its levels and its clip already; leave out levels and clip.")
        return scale
    metric = look.get("metric", "loss")
    if differences is not None:
        return choose_scale(differences, scale, levels, clip, count=kind.count, symmetric=True, metric=metric)
    path = kind.heights and look.get("trajectory", True)
    return joint_scale(landscapes, metrics or metric, scale, levels, clip, count=kind.count, path=path)


def set_value_axis(ax: Axes, scale: Scale, label: str) -> None:
    """Gives the vertical axis its label and, where there are differences to show, a scale with a tick at each level."""
    ax.set_ylabel(scale.label(label))
    if scale.flat:
        return
    if scale.kind == "log":
        ax.set_yscale("log")
    elif scale.kind == "symlog":
        ax.set_yscale("symlog", linthresh=scale.threshold)
    ax.set_yticks(scale.levels, labels=scale.texts())
    ax.set_yticks([], minor=True)
    heights = scale.forward(np.array([scale.low, scale.high]))
    ax.set_ylim(*scale.height_values(heights + np.array([-0.1, 0.06]) * np.ptp(heights)))


def topology_scale(found: Topology, landscape: LandscapeData, look: Look) -> Scale:
    wanted = look.get("scale", "auto")
    if isinstance(wanted, Scale):
        return wanted
    heights = [minimum.value for minimum in found.minima] + [saddle.value for saddle in found.saddles]
    if found.flat:
        heights = [float(np.nanmin(known(landscape[found.metric], landscape.status)))]
    values = np.clip(heights, -EXTREME, EXTREME)
    values[(values > 0) & (values < 1 / EXTREME)] = 1 / EXTREME
    # Nothing here is an outlier: each value is a minimum or a saddle.
    ends = None if np.ptp(values) == 0 else (float(values.min()), float(values.max()))
    clip = look.get("clip") or ends
    return choose_scale(values, wanted, look.get("levels"), clip, count=8, metric=found.metric)


class MeasuredCurvature(Protocol):
    """What is drawn: the curvature at n checkpoints, as ``Curvature`` explains it; NaN where it is not measured."""

    number: Int64[np.ndarray, " n"]
    status: UInt8[np.ndarray, " n"]
    eigenvalues: Float64[np.ndarray, "n pairs"]
    residuals: Float64[np.ndarray, "n pairs"]
    converged: UInt8[np.ndarray, "n pairs"]
    trace: Float64[np.ndarray, " n"]
    density_nodes: Float64[np.ndarray, "n probes steps"]
    density_weights: Float64[np.ndarray, "n probes steps"]

    @property
    def trace_interval(self) -> Float64[np.ndarray, "n 2"]: ...  # NaN where there are less than two probes
    @property
    def attributes(self) -> Mapping[str, Any]: ...  # learning_rate is among them where it is known


@dataclass(kw_only=True)
class CurvatureSheet(Picture):
    curvature: MeasuredCurvature

    @property
    def matrix(self) -> str:
        name = str(self.curvature.attributes.get("matrix", "hessian")).lower()
        return _MATRICES.get(name, words.plain(name, 24))

    @property
    def unit(self) -> str:
        return words.plain(self.curvature.attributes.get("unit") or CHECKPOINT, 32)

    @property
    def network(self) -> str:
        name = words.network_name(self.curvature.attributes)
        return words.plain(name, 40) if name else ""

    def write_title(self, named: str, *notes: str) -> None:
        """Writes what is shown, with the matrix and the samples, which a number of curvature means nothing without."""
        count = self.curvature.attributes.get("num_samples")
        samples = "all samples" if count is None else f"{int(count):,} sample{'' if count == 1 else 's'}"
        what = f"{self.matrix} of the loss, {samples}"
        self.set_title(named, [what, *notes], small=self.appearance.paper or not self.own)


@contextlib.contextmanager
def begin_picture(
    kind: type[_Page], function: str, ax: Axes | None, look: CurvatureLook, paper_height: float, **more: Any
) -> Iterator[_Page]:
    """Checks the options of a picture of no landscape; yields it, with attributes ``more``, on ``ax`` or a figure."""
    check_look(function, look, CurvatureLook)
    paper = (PAPER_WIDTH, paper_height)
    with begin_page(look, ax, lambda style: style.fitted(paper if style.paper else (6.4, 4.4))) as page:
        yield kind(**page, **more)


def symbol(place: int | str) -> str:
    """Returns an eigenvalue's symbol, such as λ₁."""
    return "λ" + str(place).translate(_SMALL)


def ends_of(curvature: MeasuredCurvature) -> tuple[int, int]:
    """Returns how many of the eigenvalues are the largest, and how many are of the lower end."""
    pairs = curvature.eigenvalues.shape[1]
    top = curvature.attributes.get("top")
    top = pairs if top is None else min(int(top), pairs)
    return top, pairs - top


def unconverged(curvature: MeasuredCurvature) -> NDArray[Any]:
    """Returns which eigenpairs are less exact than was asked for, bool[n, pairs]."""
    return np.asarray(np.isfinite(curvature.eigenvalues) & (curvature.converged != 1))
