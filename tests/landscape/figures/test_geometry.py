"""Pictures to scale: an isotropic loss has circles for contours, whatever its plane's lengths and angle.

The oracle is an ellipse fitted to the pixels of the drawn lines.
"""

import numpy as np
import pytest
from figure_cases import build, contour_lines, draw, legend_texts
from isotropic_planes import axis_ratio, isotropic_plane
from matplotlib.figure import Figure
from scipy import ndimage

from landscape import figures
from landscape.grid.data import PlaneGeometry

LEVELS = {"scale": "linear", "levels": [1.5, 3.0]}
PLANES = [(0.0, (12.0, 5.0)), (-0.7, (12.0, 5.0)), (0.7, (12.0, 5.0)), (-0.7, (3.0, 3.0)), (0.35, (2.0, 9.0))]


def drawn_ratio(ax):
    """The ratio of the axes of the longest closed line that is drawn, in pixels."""
    draw(ax)
    found = np.empty((0, 2))
    for path in contour_lines(ax).get_paths():
        for vertices in path.to_polygons(closed_only=False):
            pixels = ax.transData.transform(vertices)
            if np.hypot(*(pixels[0] - pixels[-1])) < 1.5 and len(pixels) > len(found):
                found = pixels
    assert len(found) > 20
    return axis_ratio(found)


class TestFlatPictures:
    @pytest.mark.slow
    @pytest.mark.parametrize(("cosine", "norms"), PLANES)
    @pytest.mark.parametrize("plot", [figures.plot_contour, figures.plot_contour_lines])
    def test_an_isotropic_loss_has_circles(self, plot, cosine, norms):
        ax = plot(isotropic_plane(cosine, norms), **LEVELS)
        assert drawn_ratio(ax) == pytest.approx(1, abs=0.02)

    @pytest.mark.slow
    def test_without_scale_they_are_ellipses_and_the_picture_says_so(self):
        ax = figures.plot_contour(isotropic_plane(0.0, (12.0, 5.0)), **LEVELS, aspect="fill")
        assert drawn_ratio(ax) == pytest.approx(12 / 5, rel=0.02)
        assert "axes stretched × 2.4 along y" in ax.get_title()
        ax = figures.plot_contour(isotropic_plane(-0.7, (3.0, 3.0)), **LEVELS, aspect="fill")
        assert drawn_ratio(ax) == pytest.approx(np.sqrt(1.7 / 0.3), rel=0.02)
        assert "sheared: the directions' cosine is -0.70" in ax.get_title()

    @pytest.mark.parametrize("far", [0.0, 400.0, 1e20])
    def test_a_single_row_is_as_high_wherever_it_lies(self, far):
        data = build(np.linspace(1, 2, 5)[None], points=0)
        data.y[:] = far
        width, height = figures.plot_contour(data).get_window_extent().size
        assert 1 <= width / height <= 6

    def test_an_angle_that_is_nearly_right_is_not_called_right(self):
        label = figures.plot_contour(isotropic_plane(-0.00467, (3.0, 3.0))).get_ylabel()
        assert " ".join(label.split()) == "distance at a right angle to it (cosine of the directions -0.005)"

    def test_on_axes_of_the_user_side_by_side_and_as_a_difference(self):
        plane, flat = (isotropic_plane(0.5, (12.0, 5.0)) for _ in range(2))
        flat.metrics["loss"][:] = 0
        ax = Figure(figsize=(9, 3)).add_subplot()
        for drawn in (
            figures.plot_contour(plane, ax, **LEVELS),
            *figures.plot_multiples([plane, isotropic_plane(0.0, (4.0, 9.0))], **LEVELS),
            figures.plot_difference(plane, flat, **LEVELS),
        ):
            assert drawn_ratio(drawn) == pytest.approx(1, abs=0.02)

    def test_axes_are_distances_in_weight_space(self):
        ax = figures.plot_contour(isotropic_plane(0.0, (12.0, 5.0)))
        assert (*ax.get_xlim(), *ax.get_ylim()) == pytest.approx((-12, 12, -5, 5))
        assert ax.get_xlabel().startswith("distance along")
        ax = figures.plot_contour(isotropic_plane(0.6, (10.0, 5.0)))
        assert (*ax.get_xlim(), *ax.get_ylim()) == pytest.approx((-13, 13, -4, 4))
        assert ax.get_ylabel() == "distance across\n(cosine 0.60)"
        ax = figures.plot_contour(isotropic_plane(0.6, (10.0, 5.0)), aspect="fill")
        assert ax.get_xlim() == pytest.approx((-1, 1))
        assert "distance" not in ax.get_xlabel()

    def test_path_marks_and_gaps_lie_where_the_values_do(self):
        data = isotropic_plane(-0.5, (6.0, 4.0))
        data.status[:3], data.metrics["loss"][:3] = 0, np.nan
        ax = figures.plot_heatmap(data)
        u, v = data.geometry.distances(data.checkpoints.x, data.checkpoints.y)
        (path,) = [line for line in ax.get_lines() if str(line.get_label()).startswith("trajectory")]
        assert np.allclose(path.get_xydata(), np.column_stack([u, v]))
        assert any(" ".join(text.split()).endswith("nearest measured point (243)") for text in legend_texts(ax))
        (hatched,) = [patch for patch in ax.patches + ax.artists if getattr(patch, "get_hatch", lambda: None)()]
        ends = data.geometry.distances(np.array([-1.0125, 1.0125]), np.full(2, -1 - 1 / 60))
        bottom = hatched.get_path().vertices
        assert bottom[:, 1].min() == pytest.approx(ends[1][0])
        lowest = bottom[np.isclose(bottom[:, 1], bottom[:, 1].min())]
        assert (lowest[:, 0].min(), lowest[:, 0].max()) == pytest.approx(tuple(ends[0]))

    @pytest.mark.parametrize(
        ("norms", "cosine", "aspect", "said"),
        [
            ((3.0, 3.0), 0.0, "fill", []),
            ((29.0, 5.0), 0.0, "equal", []),
            # A strip fills the square.
            ((60.0, 5.0), 0.0, "equal", ["axes stretched × 12 along y"]),
            ((np.nan, np.nan), 0.0, "equal", ["not to scale: lengths of the directions unknown"]),
            ((1.0, 1.0), None, "equal", ["not to scale: lengths of the directions unknown"]),
        ],
    )
    def test_what_is_not_to_scale_is_said(self, norms, cosine, aspect, said):
        data = build(points=0, network=None)
        data.directions.norms[:], data.directions.cosine = norms, cosine
        # The plane itself is 4.5 by 2.2.
        data.y *= np.ptp(data.x) / np.ptp(data.y)
        for plot in (figures.plot_contour, figures.plot_surface):
            title = plot(data, aspect=aspect).get_title()
            assert title.split("\n") == ["loss landscape", *said]


class TestSurfaces:
    @pytest.mark.parametrize(("cosine", "norms"), PLANES)
    def test_the_box_has_the_proportions_of_the_plane(self, cosine, norms):
        ax = figures.plot_surface(isotropic_plane(cosine, norms), **LEVELS)
        width, depth, _ = ax.get_box_aspect()
        (left, right), (front, back) = ax.get_xlim(), ax.get_ylim()
        assert width / depth == pytest.approx((right - left) / (back - front), rel=1e-6)


class TestAnimation:
    @pytest.mark.parametrize("cosine", [-0.7, 0.0, 0.7])
    def test_an_isotropic_loss_has_circles(self, cosine):
        """Of the frame's pixels: the two colours of a heat map of many cells meet in a circle."""
        plane = isotropic_plane(cosine, (12.0, 5.0), columns=401, rows=301)
        plane.metrics["loss"][:] = np.where(plane.metrics["loss"] < 8, 0.0, 1.0)
        for axis in (plane.checkpoints.x, plane.checkpoints.y):
            axis *= 0.01
        look = {"scale": "linear", "colormap": "Greys", "theme": "light"}
        frame = next(figures.walk_frames(plane, "heatmap", seconds=0.1, dpi=200, **look))
        # The curve is below the oblique planes, which are wide, and beside the other one.
        frame = frame[: frame.shape[0] * 11 // 20] if cosine else frame[:, : frame.shape[1] // 2]
        light = frame.max(axis=2) > 127
        # The walker stands in the middle of the disc.
        walker = np.abs(frame.astype(int) - (0xFF, 0x4D, 0x6D)).max(axis=2) < 8
        discs, _ = ndimage.label(light)
        around = discs[ndimage.binary_dilation(walker, iterations=30)]
        filled = ndimage.binary_fill_holes(discs == np.bincount(around[around > 0]).argmax())
        rows, columns = np.nonzero(filled)
        low, high = np.linalg.eigvalsh(np.cov(rows, columns))
        assert np.sqrt(high / low) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("cosine", "norms"), PLANES)
def test_distances_are_those_between_networks(cosine, norms):
    """The oracle: two vectors in a space of many dimensions with these lengths and this angle."""
    random = np.random.default_rng(3)
    basis, _ = np.linalg.qr(random.standard_normal((50, 2)))
    directions = np.stack(
        [norms[0] * basis[:, 0], norms[1] * (cosine * basis[:, 0] + np.sqrt(1 - cosine**2) * basis[:, 1])]
    )
    geometry = PlaneGeometry(*norms, cosine)
    assert np.allclose(geometry.gram, directions @ directions.T)
    points = random.standard_normal((9, 2))
    placed = np.column_stack(geometry.distances(*points.T))
    apart = np.linalg.norm((points[:, None] - points[None]) @ directions, axis=-1)
    assert np.allclose(np.linalg.norm(placed[:, None] - placed[None], axis=-1), apart)
    assert np.allclose(np.column_stack(geometry.coordinates(*placed.T)), points)
