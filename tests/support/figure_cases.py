"""Landscapes to draw, and what a picture says."""

import copy
import io

import numpy as np
from matplotlib.collections import QuadMesh
from matplotlib.contour import QuadContourSet
from mpl_toolkits.mplot3d.proj3d import proj_transform
from places import DATA

from landscape.drawing.camera import FLOOR
from landscape.figures import save_figure
from landscape.grid.checkpoints import CheckpointsData
from landscape.grid.data import LOSS_ERROR, DirectionsData, LandscapeData
from landscape.record.checks import PointStatus, SamplingReport
from landscape.roles import FINAL_WEIGHTS
from landscape.sampling.sampling import full_grid


def loss_at(x, y):
    """An asymmetric loss: steeper to the right than to the left, its valley bends upwards."""
    return 0.02 + (x - 0.1 * y) ** 2 + 6 * (y - 0.15 * x**2) ** 2 + 0.5 * np.clip(x, 0, None) ** 3


def build(loss=None, *, rows=20, columns=30, points=12, **attributes):
    if loss is not None:
        loss = np.asarray(loss, np.float64)
        rows, columns = loss.shape
    angle = np.linspace(9, 0, points)
    x, y = np.linspace(-2, 2.5, columns), np.linspace(-1, 1.2, rows)
    places = 0.2 * angle * np.cos(angle), 0.1 * angle * np.sin(angle)
    final = np.arange(points) == points - 1
    path = CheckpointsData.empty(range(3, 3 + points), *places, np.zeros(points), angle, final=final)
    path.projected["loss"][:] = loss_at(path.x, path.y)
    path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data = LandscapeData.empty(
        x, y, DirectionsData(np.ones(2), np.array([0.632, 0.214]), 0.0), ("loss", "accuracy"), path if points else None,
        {"decomposition": "pca", "network": "LeNet", "unit": "epoch"} | attributes,
    )  # fmt: skip
    data.metrics["loss"][:] = loss_at(x, y[:, None]) if loss is None else loss
    data.metrics["accuracy"][:] = 0.5 + 0.1 * np.sin(x)
    data.status[:] = PointStatus.MEASURED
    data.origin.metrics["loss"] = 0.02
    data.origin.status = PointStatus.MEASURED
    if points:
        data.origin.role, data.origin.number = FINAL_WEIGHTS, 2 + points
    return data


def build_line(loss, **attributes):
    loss = np.asarray(loss, np.float64)
    data = LandscapeData.empty(
        np.linspace(-1, 1, len(loss)), None, DirectionsData(np.ones(1)), ("loss", "loss_stderr"), None,
        {"decomposition": "random", "normalization": "filter", "intervals": [[20]], "unit": "step"} | attributes,
    )  # fmt: skip
    data.metrics["loss"][:] = loss
    data.status[:] = PointStatus.MEASURED
    return data


def build_real(name, network):
    """A random plane of a real network, from tests/data."""
    with np.load(DATA / f"{name}.npz") as file:
        loss = file["loss"]
    side = np.linspace(-1, 1, len(loss))
    data = LandscapeData.empty(
        side, side.copy(), DirectionsData(np.ones(2), None, 0.0), ("loss",), None,
        {"decomposition": "random", "normalization": "filter", "network": network, "intervals": [[20]]},
    )  # fmt: skip
    data.metrics["loss"][:] = loss
    data.status[:] = PointStatus.MEASURED
    data.origin.metrics["loss"] = float(loss[len(loss) // 2, len(loss) // 2])
    data.origin.status = PointStatus.MEASURED
    return data


def build_unfinished():
    """A plane with every kind of point: measured, interpolated, pending, failed, infinite."""
    data = build(rows=16, columns=20, points=6)
    loss, status = data.metrics["loss"], data.status
    loss[12:], status[12:] = np.nan, PointStatus.PENDING
    loss[1:4, 2:5], status[1:4, 2:5] = np.nan, PointStatus.FAILED
    loss[2, 15:18] = np.inf
    status[5:9, 4:12] = PointStatus.INTERPOLATED
    return data


def build_adaptive(**attributes):
    """A plane with every second row interpolated, both errors and a precision to be named: the longest headings."""
    data = build(**attributes)
    data.status[::2] = PointStatus.INTERPOLATED
    data.attributes["sampling"] = {"mode": "adaptive", "finished": True} | SamplingReport(
        tolerance=0.02, relative=False, measured=300, interpolated=300, rounds=3, estimated_error=0.01, checks=1,
        held_out=6, held_out_error=0.005, held_out_rms=0.002, reached=True, share_beyond_95=0.1, largest_gap=2,
    ).to_json()  # fmt: skip
    data.attributes["measurement_plan"] = {"precision": "bfloat16"}
    data.metrics["loss_stderr"] = np.broadcast_to(np.linspace(0.1, 0.2, data.shape[1]), data.shape).copy()
    data.metrics[LOSS_ERROR] = 0.1 * data.metrics["loss_stderr"] * (data.status == PointStatus.INTERPOLATED)
    return data


def begun(whole, count):
    """Returns a landscape of which only the first points, in the order of a survey, are measured."""
    data = copy.deepcopy(whole)
    rest = list(full_grid(data.shape))[count:]
    data.status.flat[rest] = PointStatus.PENDING
    for values in data.metrics.values():
        values.flat[rest] = np.nan
    return data


def corners(space):
    """Returns the corners of a surface's box, shape (8, 3), and where its figure shows them, shape (8, 2)."""
    floor, high = space.get_zlim()
    low = floor + (high - floor) * FLOOR / (1 + FLOOR)
    places = np.array([(x, y, z) for x in space.get_xlim() for y in space.get_ylim() for z in (low, high)])
    right, up, _ = proj_transform(*places.T, space.get_proj())
    return places, np.column_stack([right, up])


def shape_of(places):
    """Returns places without where the picture is and how large it is."""
    centred = places - places.mean(axis=0)
    return centred / np.linalg.norm(centred)


def heights(kind, threshold, values):
    """Returns heights by the definition of the scales."""
    values = np.asarray(values, float)
    if kind == "symlog":
        sizes = np.abs(values) / threshold
        return np.sign(values) * np.where(sizes < 1, sizes, 1 + np.log10(np.maximum(sizes, 1)))
    return np.log10(values) if kind == "log" else values


def drawn_values(ax):
    """Returns what shows a plane's values, whose norm is that of the colour bar: cells or filled contours."""
    return next(item for item in ax.collections if isinstance(item, QuadMesh) or getattr(item, "filled", False))


def colour_ends(axes):
    """Returns the smallest and the largest value with a colour of its own, of each picture."""
    norms = [drawn_values(ax).norm for ax in axes]
    return [(norm.vmin, norm.vmax) for norm in norms]


def contour_lines(ax):
    (lines,) = [item for item in ax.collections if isinstance(item, QuadContourSet) and not item.filled]
    return lines


def corners_of(cells):
    """Returns the corners of a surface's cells, shape (n, 4, 3)."""
    # Before matplotlib 3.11 only the corners of all cells together.
    return np.asarray(cells._faces if hasattr(cells, "_faces") else cells._vec[:3].T).reshape(-1, 4, 3)


def texts(ax):
    return [text.get_text() for text in ax.figure.findobj(lambda item: hasattr(item, "get_text"))]


def legend_texts(ax):
    legends = [*ax.figure.legends, *([ax.get_legend()] if ax.get_legend() else [])]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def line(ax, label):
    (found,) = [item for item in ax.get_lines() if str(item.get_label()).startswith(label)]
    return found


def draw(ax):
    save_figure(ax, io.BytesIO(), dpi=50)
