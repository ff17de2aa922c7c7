"""What is said of minima: where they are, how deep, which count, what was left out; in words, as JSON, on the page."""

import json
import math

import numpy as np
import pytest
from calibration_surfaces import analytic_surfaces
from command_line import invoke
from figure_cases import build, build_line, build_unfinished
from landscape_examples import write_landscape

from landscape.facts import page_facts, summary_text
from landscape.interactive.content import landscape_content
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.summary_json import summary_json
from landscape.topology import topology
from landscape.topology.topology import errors_of_values, find_topology, letter, minima_text, topology_json


def cosines(rows=81, columns=101):
    """x from -2 to 2.5, y from -1 to 1.2: minima at (-1.5, 0, 1.5) x (-0.9, 0.1, 1.1), and three at the right edge."""
    x, y = np.linspace(-2, 2.5, columns), np.linspace(-1, 1.2, rows)[:, None]
    return 1 - 0.5 * np.cos(4 * np.pi / 3 * x) - 0.3 * np.cos(2 * np.pi * (y - 0.1)) + 0.02 * x**2


def noisy(draws, samples, seed, grid=21):
    """Mean losses over samples that each add a random wave to a bowl, with standard errors; shape (draws, n, n)."""
    generator = np.random.default_rng(seed)
    side = np.linspace(-1, 1, grid)
    x, y = np.meshgrid(side, side)
    for _ in range(draws):
        along, angle, size = generator.uniform(2, 8, samples), *generator.uniform(0, 2 * np.pi, (2, samples))
        along, angle, size = (values[:, None, None] for values in (along, angle, size))
        waves = np.cos(along * (np.cos(angle) * x + np.sin(angle) * y) + size)
        losses = 0.5 + 0.15 * (x**2 + y**2) + 0.5 * waves
        yield losses.mean(axis=0), losses.std(axis=0, ddof=1) / math.sqrt(samples)


def interpolated(truth):
    """A landscape of which adaptive sampling measured as much as a tolerance of 5 % needs."""
    loss, status = np.full(truth.shape, np.nan), np.zeros(truth.shape, np.uint8)
    sampling = AdaptiveSampling(truth.shape, 0.05)
    while points := sampling.next_points(loss, status):
        loss.flat[points], status.flat[points] = truth.flat[points], PointStatus.MEASURED
    filled = sampling.fill({"loss": loss}, status)
    data = build(filled.metrics["loss"])
    data.status[:] = filled.status
    data.metrics["loss_error"] = filled.loss_error
    return data


def lows(found):
    return [minimum.value for minimum in found.minima]


class TestClosedForms:
    def test_cosines_on_a_line(self):
        x = np.linspace(-1, 1, 81)
        found = Landscape(build_line(2 - np.cos(4 * np.pi * x) + 0.1 * x)).topology()
        first, *others = found.minima
        assert [minimum.x for minimum in found.minima] == pytest.approx([-1, -0.5, 0, 0.5, 1], abs=0.026)
        assert [saddle.x for saddle in found.saddles] == pytest.approx([-0.75, -0.25, 0.25, 0.75], abs=0.026)
        assert first.persistence == math.inf
        assert [minimum.persistence for minimum in others] == pytest.approx([found.deepest_barrier] * 4, abs=0.002)
        assert [minimum.at_edge for minimum in found.minima] == [True, False, False, False, True]
        assert found.deepest_barrier == pytest.approx(1.975, abs=0.002)

    def test_cosines_on_a_plane(self):
        data = build(cosines())
        found = Landscape(data).topology()
        assert {(round(m.x, 1), round(m.y, 1), m.at_edge) for m in found.minima} == {
            (x, y, x == 2.5) for x in (-1.5, 0, 1.5, 2.5) for y in (-0.9, 0.1, 1.1)
        }
        # The ridges between rows rise by 0.6, those between columns by 1, the one before the edge by 0.25.
        depths = [minimum.persistence for minimum in found.minima]
        assert sorted(depths) == pytest.approx([0.25] * 3 + [0.6] * 6 + [1] * 2 + [math.inf], abs=0.05)
        assert found.deepest_barrier == max(depth for depth in depths if depth < math.inf)
        assert len(found.saddles) == 11
        for minimum in found.minima:
            assert data.metrics["loss"][minimum.index] == minimum.value
            assert (data.x[minimum.index[1]], data.y[minimum.index[0]]) == (minimum.x, minimum.y)

    def test_merge_height_is_that_of_the_pass(self):
        found = Landscape(build_line([0.0, 5, 1, 3, 2, 9, 1.5])).topology()
        assert lows(found) == [0, 1, 1.5, 2]
        heights = {(1, 3): 3, (3, 1): 3, (0, 3): 5, (2, 3): 9, (2, 2): 1.5}
        assert {pair: found.merge_height(*pair) for pair in heights} == heights
        assert [saddle.joins for saddle in found.saddles] == [(3, 1), (1, 0), (2, 0)]
        assert found.merge_tree.tolist() == [[3, 1], [4, 0], [2, 5]]

    def test_numbers_of_the_tree_are_those_of_scipy(self):
        """Single linkage of the minima by their merge heights is the same tree."""
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import squareform

        values = np.random.default_rng(1).permutation(600).reshape(20, 30).astype(float)
        found = Landscape(build(values)).topology(persistence=30)
        count = len(found.minima)
        heights = np.array([[found.merge_height(i, j) if i != j else 0 for j in range(count)] for i in range(count)])
        links = linkage(squareform(heights))
        assert count > 10
        assert sorted(map(sorted, found.merge_tree.tolist())) == sorted(map(sorted, links[:, :2].astype(int).tolist()))
        np.testing.assert_array_equal([saddle.value for saddle in found.saddles], links[:, 2])


class TestWhichCount:
    def test_those_deeper_than_was_asked_for(self):
        landscape = Landscape(build_line([0.0, 5, 1, 1.5, 1.25, 9, 1.5]))
        assert lows(landscape.topology(persistence=0)) == [0, 1, 1.25, 1.5]
        found = landscape.topology(persistence=0.25)
        assert repr(found) == "Topology(3 minima of loss on the grid; deepest barrier 7.5; 1 shallower left out)"
        assert lows(found) == [0, 1, 1.5]
        assert found.shallow == 1
        assert found.pairs.tolist() == [[0, math.inf], [1.5, 9], [1, 5], [1.25, 1.5]]
        assert found.counted.tolist() == [True, True, True, False]
        assert lows(landscape.topology(persistence=100)) == [0]

    @pytest.mark.parametrize(("error", "count"), [(0.0, 2), (0.49, 2), (0.51, 1)])
    def test_those_deeper_than_twice_the_standard_error(self, error, count):
        data = build_line([3.0, 1, 2, 0, 4])
        data.metrics["loss_stderr"][:] = error
        assert len(find_topology(data).minima) == count

    def test_the_error_is_that_of_the_basin_and_its_rim(self):
        """A large one far away, where the loss is large too, hides nothing."""
        data = build_line([3.0, 1, 2, 0, 4, 50])
        data.metrics["loss_stderr"][:] = [0.1, 0.1, 0.1, 0.1, 0.1, 5]
        found = find_topology(data)
        assert [minimum.error for minimum in found.minima] == pytest.approx([5, 0.1], abs=1e-4)
        for place in (0, 1, 2):
            data.metrics["loss_stderr"][:] = 0.1
            data.metrics["loss_stderr"][place] = 0.6
            assert len(find_topology(data).minima) == 1

    def test_not_those_that_rounding_makes(self):
        generator = np.random.default_rng(0)
        data = build((1 + 1e-7 * generator.normal(size=(20, 30))).astype(np.float32))
        assert len(find_topology(data).minima) == 1
        assert len(find_topology(data, persistence=0).minima) > 20
        data = build(1 + 3e-3 * generator.uniform(size=(20, 30)), measurement_plan={"precision": "bfloat16"})
        assert len(find_topology(data).minima) == 1
        data.attributes["measurement_plan"] = {"precision": "float32"}
        assert len(find_topology(data).minima) > 20

    def test_noise_of_the_samples_makes_no_minima(self):
        """The true surface is a bowl; measured with 60 samples it has several minima in nearly every draw."""
        found = []
        for loss, stderr in noisy(60, 60, seed=0):
            data = build(loss)
            data.metrics["loss_stderr"] = stderr
            found.append((len(find_topology(data).minima), len(find_topology(data, persistence=0).minima)))
        counted, all_of_them = np.array(found).T
        assert all_of_them.mean() > 2
        assert (counted > 1).mean() <= 0.05

    @pytest.mark.parametrize("every", [25, pytest.param(3, marks=pytest.mark.slow)])
    def test_interpolation_makes_no_minima(self, every):
        surfaces = list(analytic_surfaces())[::every]
        false = 0
        for surface in surfaces:
            filled, real = interpolated(surface.loss), find_topology(build(surface.loss), persistence=0)
            assert len(find_topology(filled).minima) <= len(real.minima)
            false += len(find_topology(filled, persistence=0).minima) > len(real.minima)
        assert false > 0, "the threshold has nothing to do"

    def test_of_another_metric_the_error_is_its_own(self):
        data = build_line([0.0, 1, 0.5])
        data.metrics |= {"loss@test": np.array([1.0, 3, 2]), "loss_stderr@test": np.full(3, 0.4)}
        data.metrics["loss_stderr"][:] = 9
        np.testing.assert_allclose(errors_of_values(data, "loss@test"), 0.4, rtol=1e-4)
        assert len(find_topology(data, "loss@test").minima) == 2
        assert len(find_topology(data).minima) == 1
        data.metrics["loss_error"] = np.array([0, 0, np.inf])
        np.testing.assert_allclose(errors_of_values(data, "loss"), 9, rtol=1e-4)


class TestWhatIsLeftOut:
    def test_points_without_a_value(self):
        found = Landscape(build_unfinished()).topology()
        assert found.excluded == {"pending": 80, "failed": 9, "not finite": 3}
        assert len(found.minima) == 1
        assert "80 points pending; 9 points failed; 3 points not finite" in repr(found)

    def test_a_wall_makes_two_parts(self):
        data = build_line([0.0, 1, math.inf, 2, 3, 1, 2])
        found = find_topology(data)
        assert (found.parts, lows(found)) == (2, [0, 1, 2])
        assert [minimum.persistence for minimum in found.minima] == [math.inf, math.inf, 1]
        assert [minimum.beside_gap for minimum in found.minima] == [False, False, True]
        assert (found.merge_height(0, 1), found.merge_height(1, 2), found.deepest_barrier) == (math.inf, 3, 1)

    def test_infinities_and_what_is_no_number_are_no_minima(self):
        found = find_topology(build_line([1.0, -math.inf, 2, 0]))
        assert (lows(found), found.excluded) == ([0, 1], {"not finite": 1})
        found = find_topology(build_line([math.nan, math.inf]))
        assert found.minima == found.saddles == ()
        assert found.pairs.shape == found.merge_tree.shape == (0, 2)
        assert (found.parts, found.deepest_barrier) == (0, 0)
        assert repr(found) == "Topology(0 minima of loss on the grid; 2 points not finite)"

    def test_a_row_has_no_edge_above_and_below(self):
        assert not find_topology(build(np.array([[3.0, 1, 2]]))).minima[0].at_edge

    def test_a_flat_grid_has_no_minima(self):
        found = Landscape(build(np.full((3, 5), 0.1 + 0.2))).topology()
        assert (found.minima, found.saddles, len(found.pairs), found.deepest_barrier) == ((), (), 0, 0)
        assert found.flat
        assert repr(found) == "Topology(no minima: loss is flat)"
        assert not Landscape(build_line([3, 3, 3])).topology(persistence=0).minima

    def test_a_plateau_that_is_not_all_is_one_minimum(self):
        found = Landscape(build_line([3, 3, 4])).topology()
        assert not found.flat
        assert [minimum.x for minimum in found.minima] == [-1]
        # A single point has no other to be as low as.
        found = Landscape(build_line([math.nan, 3, math.nan])).topology()
        assert (found.flat, len(found.minima)) == (False, 1)


class TestUse:
    def test_what_it_hands_out_is_read_only(self):
        found = Landscape(build(cosines())).topology()
        for array in (found.pairs, found.counted, found.merge_tree):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    @pytest.mark.parametrize(
        ("persistence", "error", "text"),
        [
            (-1, ValueError, "persistence must be a finite number of at least 0, but got -1"),
            (math.nan, ValueError, "persistence must be a finite number"),
            ("deep", TypeError, "persistence must be a finite number of at least 0, but got str: 'deep'"),
            (True, TypeError, "persistence must be a finite number"),
        ],
    )
    def test_a_wrong_persistence(self, persistence, error, text):
        with pytest.raises(error, match=text):
            Landscape(build_line([1.0, 2])).topology(persistence=persistence)

    def test_a_minimum_that_is_not_there(self):
        found = Landscape(build_line([0.0, 2, 1])).topology()
        for first, second in ((0, 2), (-1, 0)):
            with pytest.raises(ValueError, match=r"must be the place of one of the 2 minima, from 0 on, but got"):
                found.merge_height(first, second)
        with pytest.raises(TypeError, match="first must be"):
            found.merge_height(0.5, 1)


VALUES = [0.5, 5, 0.59, 1, 2, 9, 9.5]


class TestText:
    def test_one_minimum_and_several_with_the_deepest_barrier(self):
        assert minima_text(build()) == "1 minimum; of the grid on this plane, not of the network"
        text = "2 minima, deepest barrier 4.41; of the grid on this line, not of the network; 1 at the edge of the grid"
        assert minima_text(build_line(VALUES)) == text

    def test_what_is_left_out(self):
        data = build_line([0.5, 5, 0.59, 1, 0.9, 9, math.nan, 3, 4])
        data.metrics["loss_stderr"][:] = 0.2
        assert minima_text(data) == (
            "3 minima, deepest barrier 4.41; of the grid on this line, not of the network; 1 at the edge of the grid "
            "and 1 beside points without a value; 1 more is not deeper than twice the standard error; 2 parts without "
            "a path between them; 1 point without a value (1 not finite) left out"
        )

    def test_which_error_hides_the_others(self):
        data = build_line([0.5, 5, 0.59, 1, 0.9, 9])
        data.status[3] = PointStatus.INTERPOLATED
        data.metrics["loss_error"] = np.where(data.status == PointStatus.INTERPOLATED, 0.3, 0)
        del data.metrics["loss_stderr"]
        assert minima_text(data).endswith("1 more is not deeper than twice the interpolation error")
        noise = build(1 + 1e-8 * np.random.default_rng(0).normal(size=(20, 30)))
        assert minima_text(noise).endswith("more are not deeper than twice the rounding")

    def test_nothing_while_points_are_pending_or_without_a_value(self, monkeypatch):
        assert minima_text(build_unfinished()) is None
        assert topology_json(build_unfinished()) is None
        assert minima_text(build_line([math.nan, math.nan])) is None
        monkeypatch.setattr(topology, "MOST_POINTS", 6)
        assert minima_text(build_line(VALUES)) is None

    def test_a_flat_grid_has_no_minimum(self):
        flat = "none: loss is flat, the same at all points of the grid that have a value"
        assert minima_text(build(np.full((3, 5), 3.0))) == flat
        left_out = "2 points without a value (2 not finite) left out"
        assert minima_text(build_line([math.nan, 3, 3, math.nan])) == f"{flat}; {left_out}"
        assert topology_json(build_line([3, 3]))["minima"] == []
        assert topology_json(build_line([3, 3]))["flat"] is True
        assert topology_json(build_line([3, 4]))["flat"] is False

    def test_letters(self):
        assert [letter(place) for place in (0, 1, 25, 26)] == ["A", "B", "Z", ""]


class TestInfo:
    def test_says_it_also_for_programs(self, tmp_path):
        write_landscape(tmp_path / "line.h5", build_line(VALUES))
        rows = invoke("info", tmp_path / "line.h5").output.splitlines()
        assert any(row.startswith("minima") and "2 minima, deepest barrier 4.41" in row for row in rows)
        found = json.loads(invoke("info", "--json", tmp_path / "line.h5").output)["topology"]
        expected = find_topology(build_line(VALUES))
        assert [row["value"] for row in found["minima"]] == [0.5, 0.59]
        assert [row["persistence"] for row in found["minima"]] == [None, pytest.approx(4.41)]
        assert found["saddles"] == [{"x": expected.saddles[0].x, "y": None, "value": 5, "joins": [1, 0]}]
        assert found["merge_tree"] == [[1, 0]]
        assert (found["shallow"], found["parts"], found["excluded"]) == (0, 1, {})

    def test_says_it_on_the_page(self):
        data = build_line(VALUES)
        row = ["minima", minima_text(data)]
        assert row in page_facts(data)
        assert row in landscape_content(data, "a")["facts"]

    def test_says_nothing_of_an_unfinished_one(self):
        assert "minima" not in summary_text(build_unfinished())
        assert summary_json(build_unfinished())["topology"] is None
