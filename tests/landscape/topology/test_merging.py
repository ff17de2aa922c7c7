"""The sweep over a grid against gudhi's cubical complex, and the laws that it must obey."""

import gudhi
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from landscape.topology.merging import find_basins, merge

# Few different values, so that most neighbours are equal, and any floats.
TIED = st.integers(0, 3).map(float)
ANY = st.floats(-1e6, 1e6, width=32)


def grids(elements, dimensions=2):
    shapes = array_shapes(min_dims=dimensions, max_dims=dimensions, min_side=1, max_side=9)
    return arrays(np.float64, shapes, elements=elements)


def pairs_of(values):
    """Value of each minimum and of the saddle where it ends, sorted, without those that are equal."""
    basins = find_basins(values, np.zeros(values.shape))
    flat = values.ravel()
    ends = np.where(basins.saddle < 0, np.inf, flat[basins.saddle])
    pairs = np.column_stack([flat[basins.minimum], ends])
    return sorted(map(tuple, pairs[pairs[:, 1] > pairs[:, 0]].tolist()))


def pairs_of_gudhi(values):
    cells = gudhi.CubicalComplex(top_dimensional_cells=np.where(np.isfinite(values), values, np.inf))
    cells.compute_persistence(homology_coeff_field=2, min_persistence=0)
    return sorted(map(tuple, cells.persistence_intervals_in_dimension(0).tolist()))


def reachable(values, height, start):
    """Which points can be reached from one without going above a height: a flood, point by point."""
    rows, columns = values.shape
    seen, waiting = {start}, [start]
    while waiting:
        row, column = waiting.pop()
        for i in range(max(row - 1, 0), min(row + 2, rows)):
            for j in range(max(column - 1, 0), min(column + 2, columns)):
                if (i, j) not in seen and values[i, j] <= height:
                    seen.add((i, j))
                    waiting.append((i, j))
    return seen


class TestPairsAreThoseOfGudhi:
    @settings(max_examples=60, deadline=None)
    @given(grids(TIED) | grids(ANY) | grids(TIED | st.just(np.nan)) | grids(TIED, 1) | grids(ANY, 1))
    def test_on_tied_random_and_gappy_grids(self, values):
        if np.isfinite(values).any():
            assert pairs_of(values) == pairs_of_gudhi(values)

    @pytest.mark.parametrize("shape", [(40, 40), (129, 65), (500,)])
    @pytest.mark.parametrize("levels", [4, 1000])
    def test_on_large_ones(self, shape, levels):
        values = np.random.default_rng(3).integers(0, levels, shape) / levels
        pairs = pairs_of(values)
        assert pairs == pairs_of_gudhi(values)
        assert len(pairs) > 20

    def test_on_a_noisy_surface_of_256_x_256(self):
        side = np.linspace(-3, 3, 256)
        values = np.cos(side) + np.cos(side)[:, None] + 0.1 * np.random.default_rng(0).normal(size=(256, 256))
        pairs = pairs_of(values)
        assert pairs == pairs_of_gudhi(values)
        assert len(pairs) > 3000


class TestBasins:
    def test_of_a_line(self):
        values = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0])
        basins = find_basins(values, np.array([0.0, 0.1, 0.2, 0.3, 0.9, 0.4]))
        assert basins.minimum.tolist() == [3, 1, 5]
        assert basins.saddle.tolist() == [-1, 2, 4]
        assert basins.lower.tolist() == [-1, 0, 0]
        # Of each basin below its saddle, and of the points around it.
        assert basins.error.tolist() == [0.9, 0.2, 0.9]

    @pytest.mark.parametrize(
        ("values", "minimum", "saddle", "lower"),
        [
            pytest.param([[0, 9], [9, 1]], [0], [-1], [-1], id="two touch at a corner"),
            pytest.param([[1, 1, 1], [1, 0, 0], [1, 0, 0]], [4], [-1], [-1], id="of a plateau one, at its first point"),
            pytest.param([[2, 9, 1], [9, 5, 9], [9, 0, 9]], [7, 2, 0], [-1, 4, 4], [-1, 0, 0], id="all to the lowest"),
            pytest.param([[np.nan] * 4] * 3, [], [], [], id="none without a value"),
            pytest.param([np.inf, -np.inf], [], [], [], id="none of infinities"),
        ],
    )
    def test_begin_and_end_where(self, values, minimum, saddle, lower):
        basins = find_basins(np.array(values, float), np.zeros(np.shape(values)))
        assert basins.minimum.tolist() == minimum
        assert basins.saddle.tolist() == saddle
        assert basins.lower.tolist() == lower
        assert len(merge(basins, np.ones(len(minimum), bool)).saddle) == max(len(minimum) - 1, 0)

    @settings(max_examples=40, deadline=None)
    @given(grids(ANY), st.floats(0.5, 3), st.floats(-5, 5))
    def test_are_the_same_on_another_scale(self, values, factor, shift):
        """Only the order of the values counts."""
        places = np.unique(values, return_inverse=True)[1].reshape(values.shape).astype(float)
        one, other = (find_basins(grid, np.zeros(values.shape)) for grid in (values, factor * places + shift))
        for name in ("minimum", "saddle", "lower"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))

    @settings(max_examples=40, deadline=None)
    @given(grids(ANY))
    def test_pairs_do_not_depend_on_how_the_grid_is_turned(self, values):
        expected = pairs_of(values)
        for turned in (values.T, values[::-1], values[:, ::-1]):
            assert pairs_of(np.ascontiguousarray(turned)) == expected


class TestMerging:
    @settings(max_examples=40, deadline=None)
    @given(grids(st.integers(0, 12).map(float)), st.data())
    def test_height_is_the_lowest_over_which_a_path_goes(self, values, data):
        """Whichever minima are left out."""
        basins = find_basins(values, np.zeros(values.shape))
        count = len(basins.minimum)
        counted = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        merging = merge(basins, counted)
        kept = basins.minimum[counted]
        assert len(merging.saddle) == max(len(kept) - 1, 0)
        leaves = {place: [place] for place in range(len(kept))}
        for row, (saddle, joined, nodes) in enumerate(
            zip(merging.saddle, merging.joined.tolist(), merging.tree.tolist(), strict=True)
        ):
            first, second = (leaves.pop(node) for node in nodes)
            leaves[len(kept) + row] = first + second
            # The lowest of either basin, the higher one first.
            assert joined == sorted((min(first), min(second)), reverse=True)
            height = values.ravel()[saddle]
            places = [tuple(int(i) for i in np.unravel_index(kept[place], values.shape)) for place in joined]
            assert places[1] in reachable(values, height, places[0])
            below = values[values < height]
            if len(below) and values[places[0]] < height:
                assert places[1] not in reachable(values, below.max(), places[0])
