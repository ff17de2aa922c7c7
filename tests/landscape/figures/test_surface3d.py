"""Surfaces: their cells, ticks and paths, and from where they are seen."""

import numpy as np
import pytest
from figure_cases import build, corners, corners_of, line, shape_of
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from landscape.drawing.camera import CAMERAS, Camera, check_camera, offered_cameras, plotly_box
from landscape.figures import plot_multiples, plot_surface
from landscape.interactive import notebook_figure


class TestSurface:
    def test_heights_are_logarithms_and_ticks_are_values(self):
        ax = plot_surface(build(points=0))
        assert ax.get_zlabel() == "loss (log scale)"
        values = [float(text.get_text()) for text in ax.get_zticklabels()]
        np.testing.assert_allclose(10.0 ** np.array(ax.get_zticks()), values, rtol=1e-6)

    def test_cells_stand_over_their_place(self):
        loss = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50], [1, 2, np.nan, 4, 5.0]])
        data = build(loss, points=0)
        ax = plot_surface(data)
        cells = next(item for item in ax.collections if isinstance(item, Poly3DCollection))
        flat = corners_of(cells).reshape(-1, 3)
        grid = {(x, y): loss[j, i] for j, y in enumerate(data.y) for i, x in enumerate(data.x)}
        assert len(flat) == 4 * 6
        for x, y, height in flat:
            assert 10**height == pytest.approx(grid[x, y])
        assert "1 points not finite" in ax.get_title()

    def test_the_path_runs_at_its_projected_loss(self):
        data = build()
        ax = plot_surface(data)
        x, y, height = line(ax, "trajectory (projected loss)").get_data_3d()
        np.testing.assert_array_equal(x, data.checkpoints.x)
        np.testing.assert_array_equal(y, data.checkpoints.y)
        np.testing.assert_allclose(10 ** np.asarray(height), data.checkpoints.projected["loss"])
        star = np.ravel(line(ax, "final weights").get_data_3d())
        np.testing.assert_allclose(star, [0, 0, np.log10(0.02)])

    def test_an_origin_below_every_grid_point_keeps_its_height(self):
        data = build(np.full((3, 5), 1.0), points=0)
        data.origin.metrics["loss"] = 0.01
        ax = plot_surface(data)
        assert line(ax, "origin").get_data_3d()[2][0] == pytest.approx(0.01)
        assert ax.get_zlim()[0] < 0.01
        assert "flat: loss is 1 at all 15 finite points" in ax.get_title()

    def test_checkpoints_that_are_pending_are_left_out(self):
        data = build()
        data.checkpoints.projected["loss"][3:] = np.nan
        x, _, _ = line(plot_surface(data), "trajectory").get_data_3d()
        np.testing.assert_array_equal(x, data.checkpoints.x[:3])

    def test_flat_axes_are_refused(self):
        with pytest.raises(TypeError, match=r"ax must be three-dimensional axes"):
            plot_surface(build(), Figure().add_subplot())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, CAMERAS["default"]),
        ("default", Camera(-60, 35)),
        (" Low ", CAMERAS["low"]),
        ("auto", None),
        ("-75, 20.5", Camera(-75, 20.5)),
        ((30, np.float64(90)), Camera(30, 90)),
        ([0, -10], Camera(0, -10)),
        (Camera(1, 2), Camera(1, 2)),
    ],
)
def test_what_a_camera_may_be(given, expected):
    assert check_camera(given) == expected
    name, offered = offered_cameras(given)
    assert check_camera(name) == offered[name] == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("sideways", ValueError, "camera must be one of default, front, side, above, low, auto, or azimuth and"),
        ("30,99", ValueError, "the elevation from -90 to 90, but got '30,99'"),
        ("30", ValueError, "azimuth and elevation in degrees such as -60,30"),
        ((1, 2, 3), ValueError, "azimuth and elevation in degrees such as -60,30"),
        (("a", 2), TypeError, r"camera\[0\] must be a finite number"),
        ("nan,2", ValueError, r"camera\[0\] must be a finite number"),
        (Camera(0, 120), ValueError, "the elevation from -90 to 90"),
        (30, TypeError, "camera must be one of default"),
    ],
)
def test_wrong_cameras(given, error, message):
    with pytest.raises(error, match=message):
        check_camera(given)


def seen_by_plotly(camera, box):
    """Returns the same corners as plotly's camera projects them."""
    eye, center = (np.array([camera[name][axis] for axis in "xyz"]) for name in ("eye", "center"))
    half = np.array([box[axis] for axis in "xyz"]) / 2
    places = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half
    ahead = (center - eye) / np.linalg.norm(center - eye)
    right = np.cross(ahead, [0, 0, 1])
    right /= np.linalg.norm(right)
    axes = np.array([right, np.cross(right, ahead), ahead])
    seen = (places - eye) @ axes.T
    return seen[:, :2] / seen[:, 2:]


@pytest.mark.parametrize("name", [*CAMERAS, "-200,50"])
def test_a_figure_and_plotly_show_the_same_projection(name):
    data = build()
    data.directions.norms[:] = (1.0, 3.0)
    space = plot_surface(data, camera=name)
    width, depth = np.ptp(space.get_xlim()), np.ptp(space.get_ylim())
    root = np.sqrt(width / depth)
    box = plotly_box((root, 1 / root, 5 / 9))
    camera = check_camera(name)
    expected = seen_by_plotly(camera.of_plotly(box), box)
    np.testing.assert_allclose(shape_of(corners(space)[1]), shape_of(expected), atol=2e-3)


def test_all_files_have_one_camera_and_auto_looks_for_each():
    rising = np.linspace(1, 5, 8) * np.ones((6, 1))
    files = [build(loss, points=0) for loss in (rising, rising[:, ::-1])]
    for data in files:
        # An origin far below the surface is hidden from nearly everywhere.
        data.origin.metrics["loss"] = np.nan
    for camera, place in ((None, (-60, 35)), ("low", (-60, 12))):
        assert {(ax.azim, ax.elev) for ax in plot_multiples(files, kind="surface", camera=camera)} == {place}
    right, left = (np.cos(np.radians(ax.azim)) for ax in plot_multiples(files, kind="surface", camera="auto"))
    assert right < 0 < left


def test_auto_sees_a_path_that_others_do_not():
    x = np.linspace(-1, 1, 25)
    # A wall before the path, seen from the default camera's side.
    loss = np.where(x[:, None] < -0.3, 5.0, 1.0) * np.ones((25, 25))
    data = build(loss, points=3)
    data.checkpoints.x[:], data.checkpoints.y[:] = data.x[[6, 12, 18]], data.y[10]
    data.checkpoints.projected["loss"][:] = 1.0
    data.origin.metrics["loss"] = float("nan")
    hidden = {}
    for camera in ("low", "auto"):
        ax = plot_surface(data, camera=camera)
        path = next(each for each in ax.get_lines() if each.get_label() == "_path")
        hidden[camera] = path.hidden().mean()
    assert hidden["low"] > 0.5
    assert hidden["auto"] == 0


def test_the_figure_in_a_notebook_has_the_same_camera():
    data = build()
    usual, low, turned = (notebook_figure(data, camera) for camera in (None, "low", (-60, 12)))
    assert low["layout"]["scene"]["camera"] == turned["layout"]["scene"]["camera"]
    eye, center = (usual["layout"]["scene"]["camera"][name] for name in ("eye", "center"))
    toward = np.array([eye[axis] - center[axis] for axis in "xyz"])
    np.testing.assert_allclose(toward / np.linalg.norm(toward), CAMERAS["default"].toward, atol=1e-6)
    with pytest.raises(ValueError, match="camera must be one of default"):
        notebook_figure(data, "sideways")
