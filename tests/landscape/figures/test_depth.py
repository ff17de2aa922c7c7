"""Which marks of a path a surface hides: against a depth buffer, and in the picture's own pixels."""

import io
from functools import cache

import numpy as np
import pytest
from figure_cases import build, build_real, legend_texts, line
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import proj3d
from scipy.interpolate import RegularGridInterpolator

from landscape.drawing.occlusion import LIFT, Relief
from landscape.drawing.path import START
from landscape.figures import figure_pixels, plot_multiples, plot_surface, save_figure
from landscape.grid.checkpoints import CheckpointsData
from landscape.record.checks import PointStatus

CAMERAS = [
    (25, -60, "persp"), (25, 30, "persp"), (25, 120, "persp"), (25, -150, "persp"), (8, 15, "persp"), (60, 75, "persp"),
    (12, -100, "ortho"), (35, 160, "ortho"), (90, -90, "persp"), (90, 0, "ortho"), (-20, 40, "persp"),
    (3, -170, "persp"),
]  # fmt: skip


def _with_path(data, seed):
    """Gives a plane a path of 25 checkpoints all over it, whose heights are those of the surface."""
    x = np.random.default_rng(seed).uniform(data.x[0], data.x[-1], 25)
    y = np.random.default_rng(seed + 1).uniform(data.y[0], data.y[-1], 25)
    path = CheckpointsData.empty(range(25), x, y, np.zeros(25), np.ones(25))
    path.projected["loss"][:] = 10 ** _bilinear(data.x, data.y, np.log10(data.loss), x, y)
    path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data.checkpoints = path
    data.origin.metrics["loss"] = float("nan")
    return data


def _bilinear(x, y, heights, at_x, at_y):
    return RegularGridInterpolator((y, x), heights)(np.stack([at_y, at_x], axis=-1))


@cache
def surface(name):
    if name in ("bowl", "oblique"):
        bowl = _with_path(build(points=0), 1)
        if name == "oblique":
            bowl.directions.norms[:], bowl.directions.cosine = (1.0, 2.0), -0.6
        return bowl
    if name == "resnet":
        return _with_path(build_real("surface_resnet_pca", "ResNet"), 3)
    x, y = np.linspace(-2, 2.5, 30), np.linspace(-1, 1.2, 20)[:, None]
    hills = 2 * np.exp(-6 * (x - 0.3) ** 2 - 12 * (y - 0.2) ** 2) + 1.4 * np.exp(
        -5 * (x + 1) ** 2 - 20 * (y + 0.4) ** 2
    )
    loss = 0.2 + y**2 + 0.3 * x**2 + hills
    # The path goes on over a hole.
    loss[4:7, 20:24] = np.nan
    data = _with_path(build(np.where(np.isnan(loss), np.nanmax(loss), loss), points=0), 5)
    data.metrics["loss"][:] = loss
    return data


SURFACES = ("bowl", "hills", "resnet", "oblique")


def depth_buffer_hides(data, heights, points, projection, pieces=4):
    """Returns which points lie behind the projected triangles of a surface, each cell cut into ``pieces`` squared."""
    x, y = (
        np.interp(np.arange(0, len(axis) - 1 + 0.5 / pieces, 1 / pieces), np.arange(len(axis)), axis)
        for axis in (data.x, data.y)
    )
    fine = np.array([np.interp(x, data.x, row) for row in heights])
    fine = np.array([np.interp(y, data.y, column) for column in fine.T]).T
    flat = [values.ravel() for values in (*data.geometry.distances(*np.meshgrid(x, y)), fine)]
    corners = np.stack(proj3d.proj_transform(*flat, projection), -1).reshape(*fine.shape, 3)
    ends = corners[:-1, :-1], corners[1:, 1:]
    middles = corners[1:, :-1], corners[:-1, 1:]
    triangles = np.concatenate([np.stack([ends[0], middle, ends[1]], 2).reshape(-1, 3, 3) for middle in middles])
    first, second, third = triangles[np.isfinite(triangles).all(axis=(1, 2))].transpose(1, 2, 0)
    found = []
    for px, py, pz in np.stack(proj3d.proj_transform(*np.asarray(points).T, projection), -1):
        area = (second[0] - first[0]) * (third[1] - first[1]) - (third[0] - first[0]) * (second[1] - first[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            v = ((px - first[0]) * (third[1] - first[1]) - (third[0] - first[0]) * (py - first[1])) / area
            w = ((second[0] - first[0]) * (py - first[1]) - (px - first[0]) * (second[1] - first[1])) / area
        over = (v >= 0) & (w >= 0) & (v + w <= 1)
        depth = (first[2] * (1 - v - w) + second[2] * v + third[2] * w)[over]
        # Matplotlib's depth grows away from the camera.
        found.append(bool((depth < pz).any()))
    return np.array(found)


@cache
def picture(name):
    return plot_surface(surface(name), theme="light")


def seen(name, camera):
    """Returns a picture seen from a camera, the marks of its path, and which of these a depth buffer hides."""
    ax, (elevation, azimuth, kind), heights = picture(name), camera, np.log10(surface(name).loss)
    ax.set_proj_type(kind)
    ax.view_init(elev=elevation, azim=azimuth)
    marks = line(ax, "trajectory (projected loss)")
    points = np.column_stack(marks.get_data_3d())
    points[:, 2] += LIFT * (np.nanmax(heights) - np.nanmin(heights))
    return ax, marks, depth_buffer_hides(surface(name), heights, points, ax.get_proj())


class TestHidden:
    @pytest.mark.parametrize("name", SURFACES)
    def test_a_checkpoint_is_hidden_exactly_where_a_depth_buffer_hides_it(self, name):
        counts = []
        for camera in CAMERAS:
            _, marks, expected = seen(name, camera)
            hidden = marks.hidden()
            np.testing.assert_array_equal(hidden, expected, err_msg=str(camera))
            counts.append(int(hidden.sum()))
        # From straight above nothing is hidden; from elsewhere something is, and not all.
        assert counts[8] == counts[9] == 0
        assert sum(0 < count < 25 for count in counts) >= 4

    def test_a_mark_below_the_surface_is_seen_from_below_its_edge(self):
        data = build(np.ones((5, 5)), points=0)
        data.origin.metrics["loss"] = 0.01
        ax = plot_surface(data)
        for elevation, hidden in ((80, True), (30, False), (-30, False)):
            ax.view_init(elev=elevation, azim=20)
            assert line(ax, "origin").hidden().tolist() == [hidden], elevation

    def test_the_size_of_the_axes_is_of_no_account(self):
        data = surface("hills")
        ax, marks, _ = seen("hills", CAMERAS[0])
        points = np.column_stack(marks.get_data_3d())
        heights, projection = np.log10(data.loss), ax.get_proj()
        before = Relief(data.x, data.y, heights).hides(points, projection)
        for sizes in (np.array([1e-7, 1e5, 1e-3]), np.array([1e9, 1e-9, 1.0])):
            grid = Relief(data.x * sizes[0], data.y * sizes[1], heights * sizes[2])
            after = grid.hides(points * sizes, projection @ np.diag([*1 / sizes, 1]))
            np.testing.assert_array_equal(after, before)

    def test_the_path_runs_over_the_surface_and_through_every_checkpoint(self):
        data = build()
        heights = np.log10(data.loss)
        points = np.column_stack([data.checkpoints.x, data.checkpoints.y, np.log10(data.checkpoints.projected["loss"])])
        path = Relief(data.x, data.y, heights).path_over(points)
        assert (np.abs(path[:, None] - points).sum(axis=-1).min(axis=0) < 1e-12).all()
        on_surface = path[:, 2] - _bilinear(data.x, data.y, heights, path[:, 0], path[:, 1])
        own = points[:, 2] - _bilinear(data.x, data.y, heights, points[:, 0], points[:, 1])
        assert on_surface.min() >= own.min() - 1e-12
        assert on_surface.max() <= own.max() + 1e-12


class TestPictures:
    @pytest.mark.parametrize(
        "cameras", [CAMERAS[4:5], pytest.param(CAMERAS[::2], marks=pytest.mark.slow)], ids=["one", "six"]
    )
    @pytest.mark.parametrize("name", SURFACES)
    def test_marks_are_solid_in_front_and_faint_behind(self, name, cameras):
        looked = {True: 0, False: 0}
        for camera in cameras:
            ax, marks, behind = seen(name, camera)
            # Arrowheads and the end's ring may cover a mark.
            for item in ax.get_lines():
                item.set_visible(not str(item.get_label()).startswith(("_arrows", "end")))
            pixels = figure_pixels(ax, dpi=150)
            (way,) = [item for item in ax.get_lines() if item.get_label() == "_path"]
            shown = np.column_stack(way.get_data_3d())[~way.hidden()]
            lines, places = (_pixels(ax, at, 150) for at in (shown, np.column_stack(marks.get_data_3d())))
            color_of_mark = to_rgb(marks.get_markerfacecolor())
            drawn = marks.get_markevery() or range(len(places))
            for index, (column, row) in enumerate(places):
                if index not in drawn:
                    continue
                others = np.delete(places, index, axis=0)
                near = [np.hypot(*(others - (column, row)).T)]
                if behind[index]:
                    near.append(np.hypot(*(lines - (column, row)).T))
                if min(distances.min(initial=99) for distances in near) < 9:
                    continue
                # The start's square is larger than the other marks.
                if index and near[0][0] < 14:
                    continue
                color = pixels[pixels.shape[0] - 1 - int(row), int(column)] / 255
                solid = np.abs(color - (color_of_mark if index else to_rgb(START["color"]))).max() < 0.1
                assert solid != behind[index], (camera, index, color)
                looked[bool(behind[index])] += 1
        assert looked[False] >= 3 * len(cameras)
        assert looked[True] >= 2 * len(cameras)

    def test_the_legend_says_what_dotted_is_where_something_is_hidden(self):
        steep = build()
        steep.origin.metrics["loss"] = 0.001
        plain = build(np.add.outer(np.linspace(1, 2, 20) ** 2, np.zeros(30)), points=0)
        plain.origin.metrics["loss"] = 1.5**2
        only_the_star = build(points=0)  # which is faint where it is hidden, and not dotted
        only_the_star.origin.metrics["loss"] = 0.001
        for data, said in ((steep, True), (plain, False), (only_the_star, False)):
            assert ("behind the surface" in legend_texts(plot_surface(data))) is said

    def test_several_pictures_hide_too(self):
        for ax in plot_multiples([surface("hills")] * 2, kind="surface"):
            assert line(ax, "trajectory").hidden().any()

    def test_a_surface_of_holes_hides_nothing(self):
        data = build()
        data.metrics["loss"][::2] = np.nan
        ax = plot_surface(data, Figure().add_subplot(projection="3d"))
        assert not line(ax, "trajectory").hidden().any()
        save_figure(ax, io.BytesIO(), dpi=40)


def _pixels(ax, points, dpi):
    across, up, _ = proj3d.proj_transform(*points.T, ax.get_proj())
    return ax.transData.transform(np.column_stack([across, up])) * dpi / ax.figure.dpi
