"""Pictures of unfinished landscapes: coarse cells look like what they are, and change no number."""

import copy

import numpy as np
import pytest
from figure_cases import begun, build, build_line, contour_lines, corners_of, draw, legend_texts, texts
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_rgb
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from landscape import figures
from landscape.drawing.missing import blocks
from landscape.record.checks import PointStatus
from landscape.sampling.grids import coarse_values, covering_points

LABEL = "coarse: value of the nearest measured point"


def plane(count=32, **options):
    return begun(build(rows=40, columns=40, **options), count)


def meshes(ax):
    """Returns the colours of drawn cells by mesh, shape (ny, nx, 4), and whether they are drawn."""
    found = []
    for mesh in (item for item in ax.collections if isinstance(item, QuadMesh)):
        values = np.ma.asarray(mesh.get_array())
        found.append((mesh.cmap(mesh.norm(values)), ~np.ma.getmaskarray(values)))
    return found


@pytest.mark.parametrize(
    ("function", "theme", "page"),
    [
        (figures.plot_contour, "light", "white"),
        (figures.plot_heatmap, "light", "white"),
        (figures.plot_heatmap, "dark", "#14171c"),
    ],
)
def test_exact_cells_keep_their_colours_and_coarse_ones_are_washed_out_and_hatched(function, theme, page):
    data = plane()
    before = copy.deepcopy(data)
    ax = function(data, theme=theme)
    draw(ax)
    # Coarse values are for looking at alone.
    np.testing.assert_array_equal(data.loss, before.loss)
    np.testing.assert_array_equal(data.status, before.status)
    (exact, measured), (coarse, shown) = meshes(ax)
    np.testing.assert_array_equal(measured, data.status == PointStatus.MEASURED)
    points = covering_points(data.status)
    np.testing.assert_array_equal(shown, points >= 0)
    expected = 0.55 * exact.reshape(-1, 4)[points[shown]][:, :3] + 0.45 * np.array(to_rgb(page))
    np.testing.assert_allclose(coarse[shown][:, :3], expected, atol=0.004)
    # No coarse cell can be taken for an exact one: none of the colour map's colours is among them.
    apart = np.abs(coarse[shown][:, None, :3] - ax.collections[0].cmap(np.arange(256))[None, :, :3]).max(axis=2).min()
    assert apart > 0.04
    (patch,) = [patch for patch in ax.patches if patch.get_hatch() and patch.get_hatch().startswith("\\")]
    places = np.stack(np.meshgrid(data.x, data.y), axis=-1)[5:-5:6, 5:-5:6].reshape(-1, 2)
    path = patch.get_path().transformed(patch.get_transform())
    inside = [bool(path.contains_point(centre)) for centre in ax.transData.transform(places)]
    assert inside == (data.status[5:-5:6, 5:-5:6] == PointStatus.PENDING).ravel().tolist()
    assert f"{LABEL} (1,568)" in legend_texts(ax)
    assert "measured (32)" in legend_texts(ax)
    assert not any("pending" in text for text in texts(ax))
    assert ax.get_title().endswith("2 % measured (32 of 1,600 points)")


def test_no_line_runs_through_what_is_not_measured():
    data = plane(900)
    ax = figures.plot_contour(data, scale="linear")
    lines = contour_lines(ax)
    vertices = np.concatenate([path.vertices for path in lines.get_paths()])
    assert len(vertices) > 20
    columns, rows = (np.interp(vertices[:, axis], at, np.arange(40)) for axis, at in enumerate((data.x, data.y)))
    measured = data.status == PointStatus.MEASURED
    for row, column in zip(rows, columns, strict=True):
        # Between two points of a row or of a column, or across a cell of which one corner may be missing.
        around = measured[int(row) : int(np.ceil(row)) + 1, int(column) : int(np.ceil(column)) + 1]
        assert around.sum() >= min(around.size, 3)


@pytest.mark.parametrize("bad", ["failed", "not finite"])
def test_a_point_without_a_number_fills_nothing(bad):
    data = plane()
    points = covering_points(data.status)
    lost = int(points[19, 19])
    if bad == "failed":
        data.status.flat[lost] = PointStatus.FAILED
    data.metrics["loss"].flat[lost] = np.nan if bad == "failed" else np.inf
    ax = figures.plot_heatmap(data)
    _, shown = meshes(ax)[1]
    np.testing.assert_array_equal(shown, (points >= 0) & (points != lost))
    count = int((points == lost).sum())
    assert {f"{bad} (1)", f"pending ({count})", f"{LABEL} ({1568 - count:,})"} <= set(legend_texts(ax))


def test_colours_are_chosen_from_measured_values_alone():
    data = plane()
    norm, values = figures.plot_heatmap(data).collections[0].norm, data.loss[data.status == PointStatus.MEASURED]
    assert (norm.vmin, norm.vmax) == (values.min(), values.max())


def test_lines_on_the_bare_page_have_coarse_colours_and_a_bar():
    ax = figures.plot_contour_lines(plane())
    ((_, shown),) = meshes(ax)
    assert shown.sum() == 1568
    assert any(axes.get_ylabel().startswith("loss") for axes in ax.figure.axes)


def test_a_surface_has_flat_washed_plateaus():
    data = plane()
    ax = figures.plot_surface(data, scale="linear", theme="light")
    (cells,) = [item for item in ax.collections if isinstance(item, Poly3DCollection)]
    corners = corners_of(cells)
    assert len(corners) >= 32
    np.testing.assert_array_equal(np.ptp(corners[..., 2], axis=1), 0)
    losses = data.metrics["loss"][data.status == PointStatus.MEASURED]
    assert set(corners[:, 0, 2]) <= set(losses)
    assert corners[..., 0].min() >= data.x[0]
    assert corners[..., 0].max() <= data.x[-1]
    # Together they are as large as the plane, so nothing lies on two of them.
    area = np.ptp(corners[..., 0], axis=1) @ np.ptp(corners[..., 1], axis=1)
    assert area == pytest.approx(np.ptp(data.x) * np.ptp(data.y))
    faces = cells.get_facecolor()[:, :3]
    assert (faces >= 0.45 - 1e-6).all()
    assert not np.allclose(cells.get_edgecolor()[:, :3], faces)
    assert any(text.replace("\n", " ").startswith(LABEL) for text in legend_texts(ax))


def test_where_the_surface_itself_is_known_there_is_no_plateau():
    whole = figures.plot_surface(plane(1600))
    (cells,) = [item for item in whole.collections if isinstance(item, Poly3DCollection)]
    assert len(corners_of(cells)) == 39 * 39
    assert not any("coarse" in text for text in legend_texts(whole))


def test_a_profile_has_dotted_steps():
    data = begun(build_line(0.05 + np.linspace(-1.2, 1, 101) ** 2), 30)
    ax = figures.plot_profile(data)
    (steps,) = [item for item in ax.collections if isinstance(item, LineCollection) and "coarse" in item.get_label()]
    segments = np.array(steps.get_segments())
    shown = coarse_values(data.metrics["loss"], data.status)
    np.testing.assert_array_equal(segments[:, :, 1], np.repeat(shown[np.isfinite(shown)][:, None], 2, axis=1))
    np.testing.assert_allclose(segments.mean(axis=1)[:, 0], data.x[np.isfinite(shown)])
    assert steps.get_alpha() < 1
    assert f"{LABEL} (71)" in legend_texts(ax)


def test_multiples_share_one_entry():
    axes = figures.plot_multiples([plane(), plane(160)])
    assert legend_texts(axes[0]).count(LABEL) == 1
    assert [ax.get_title().split("\n")[-1].split(" (")[0] for ax in axes] == ["2 % measured", "10 % measured"]


def test_a_difference_is_coarse_where_either_is_pending():
    _, shown = meshes(figures.plot_difference(plane(), plane(1600), scale="linear"))[1]
    assert shown.sum() == 1568


def test_rectangles_cover_each_cell_once():
    points = np.array([[3, 3, 3, -1], [3, 7, 7, 7], [3, 7, 7, 7], [12, 12, 3, 3]])
    drawn = np.full(points.shape, -1)
    for top, bottom, left, right, index in blocks(points):
        assert (drawn[top:bottom, left:right] == -1).all()
        drawn[top:bottom, left:right] = index
    np.testing.assert_array_equal(drawn, points)
    assert [1, 3, 1, 4, 7] in blocks(points).tolist()
