"""From where surfaces are seen: presets and their reading, and one camera for all pictures."""

import numpy as np
import pytest
from figure_cases import build, corners, shape_of

from landscape.drawing.camera import CAMERAS, Camera, camera_name, check_camera, plotly_box
from landscape.figures import plot_multiples, plot_surface
from landscape.interactive import notebook_figure
from landscape.landscape import Landscape


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
    assert check_camera(camera_name(expected)) == expected


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


@pytest.mark.slow
def test_all_panels_have_one_camera_and_auto_looks_for_each():
    rising = np.linspace(1, 5, 8) * np.ones((6, 1))
    files = [Landscape(build(loss, points=0)) for loss in (rising, rising[:, ::-1])]
    for camera, places in ((None, {(-60, 35)}), ("low", {(CAMERAS["low"].azimuth, CAMERAS["low"].elevation)})):
        panels = plot_multiples(files, kind="surface", camera=camera)
        assert {(ax.azim, ax.elev) for ax in panels} == places
    assert len({ax.azim for ax in plot_multiples(files, kind="surface", camera="auto")}) == 2


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
