import numpy as np
import pytest
from figure_cases import build, line
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from landscape.figures import plot_surface


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
        flat = np.asarray(cells._faces if hasattr(cells, "_faces") else cells._vec[:3].T).reshape(-1, 3)
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

    def test_every_file_is_seen_from_the_same_place_unless_the_best_one_is_looked_for(self):
        rising = np.linspace(1, 5, 8) * np.ones((6, 1))
        looking = {}
        for name, loss in (("right", rising), ("left", rising[:, ::-1])):
            data = build(loss, points=0)
            # An origin far below the surface is hidden from nearly everywhere.
            data.origin.metrics["loss"] = np.nan
            ax = plot_surface(data, trajectory=False)
            assert (ax.azim, ax.elev) == (-60, 35)
            ax = plot_surface(data, trajectory=False, camera="auto")
            looking[name] = np.cos(np.radians(ax.azim))
        assert looking["right"] < 0 < looking["left"]

    def test_flat_axes_are_refused(self):
        with pytest.raises(TypeError, match=r"ax must be three-dimensional axes"):
            plot_surface(build(), Figure().add_subplot())
