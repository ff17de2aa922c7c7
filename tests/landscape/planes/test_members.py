"""Further runs and networks on a plane: where they lie, by another way, and who they are."""

import numpy as np
import pytest
import torch
from examples import train_run
from least_squares import least_squares
from torch import nn

from collectors.errors import CheckpointError
from collectors.run_directory import RunDirectory
from landscape.planes import line_between, pca_plane, plane_through, random_line, random_plane
from landscape.planes.networks import columns_of, runs_of

# Of small networks, random directions are oblique, which is welcome here.
pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def states(count, first=0):
    return [dict(network(seed).state_dict()) for seed in range(first, first + count)]


PLANES = {
    "pca": lambda: pca_plane(states(4), network=network()),
    "random": lambda: random_plane(network(), seed=3),
    "networks": lambda: plane_through(network(0), network(1), network(2)),
    "line": lambda: line_between(network(0), network(1)),
    "random line": lambda: random_line(network(), seed=1),
}


@pytest.mark.parametrize("kind", list(PLANES))
def test_projections_are_least_squares(kind):
    plane, others = PLANES[kind](), states(3, first=20)
    found = plane.project(others, numbers=[2, 4, 8])
    assert found.coordinates.shape == (3, plane.dimension)
    assert found.residuals.shape == found.norms.shape == (3,)
    assert (found.numbers.tolist(), found.runs) == ([2, 4, 8], ("", "", ""))
    coordinates, residuals, norms = least_squares(plane.space, plane.directions, plane.origin, others)
    np.testing.assert_allclose(found.coordinates, coordinates, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.residuals, residuals, rtol=1e-6)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-6)
    np.testing.assert_array_equal(found.x, found.coordinates[:, 0])
    assert (found.y is None) == (plane.dimension == 1)


def test_a_run_directory_and_several_runs(tmp_path):
    trained = train_run(tmp_path / "adam", epochs=3)
    plane = random_plane(trained, seed=0)
    found = plane.project({"adam": RunDirectory(tmp_path / "adam"), "last": [trained]}, numbers={"adam": [1, 3]})
    assert found.runs == ("adam", "adam", "last")
    assert found.numbers.tolist() == [1, 3, 0]
    # The origin is the last checkpoint.
    np.testing.assert_allclose(found.coordinates[1:], 0, atol=1e-12)
    assert found.norms[0] > 0


class TestAdding:
    def test_the_plane_stays_and_its_members_grow(self):
        plane = pca_plane({"sgd": states(4)}, network=network())
        grown = plane.with_checkpoints({"adam": states(3, first=9)}, {"EMA": network(30), "SWA": network(31)})
        assert grown.identity == plane.identity
        assert grown.directions is plane.directions
        columns = columns_of(grown.networks)
        assert (columns["runs"], columns["run"]) == (("sgd", "adam"), (0, 0, 0, 0, 1, 1, 1, -1, -1))
        assert columns["number"] == (0, 1, 2, 3, 0, 1, 2, 7, 8)
        assert columns["name"] == ("",) * 7 + ("EMA", "SWA")
        assert len(set(columns["sha256"])) == 9
        np.testing.assert_array_equal(grown.projection.x[:4], plane.projection.x)
        added = [*states(3, first=9), *states(2, first=30)]
        coordinates, residuals, _ = least_squares(plane.space, plane.directions, plane.origin, added)
        np.testing.assert_allclose(np.stack(grown.projection.coordinates, axis=1)[4:], coordinates, rtol=1e-6)
        np.testing.assert_allclose(grown.projection.residual[4:], residuals, rtol=1e-6)
        assert list(runs_of(plane.networks)) == ["sgd"]
        again = grown.with_checkpoints(networks={"seed 2": network(40)})
        assert (again.networks[-1].name, len(again.checkpoints)) == ("seed 2", 10)

    def test_a_run_without_a_name_gets_one(self, tmp_path):
        own = states(4)
        plane = pca_plane(own, network=network())
        more = {"adam": states(3, first=9)}
        assert list(runs_of(plane.with_checkpoints(more).networks)) == ["run", "adam"]
        named = plane.with_checkpoints(more, name="sgd")
        assert list(runs_of(named.networks)) == ["sgd", "adam"]
        assert named.origin_role.run == "sgd"
        # Its own checkpoints under a name are no second run.
        given = plane.with_checkpoints({"sgd": own, **more}, numbers={"sgd": [5, 6, 7, 8]})
        assert list(runs_of(given.networks)) == ["sgd", "adam"]
        assert [network.number for network in given.networks] == [5, 6, 7, 8, 0, 1, 2]
        assert (given.origin_role.run, given.origin_role.number) == ("sgd", 8)
        assert list(runs_of(plane.with_checkpoints(networks={"EMA": network(9)}).networks)) == [""]
        folder = tmp_path / "momentum"
        folder.mkdir()
        for index, state in enumerate(own):
            torch.save(state, folder / f"{index}.pt")
        files = pca_plane(sorted(folder.glob("*.pt")), network=network())
        assert list(runs_of(files.with_checkpoints(more).networks)) == ["momentum", "adam"]

    def test_the_networks_of_another_plane(self):
        plane = pca_plane({"sgd": states(4)}, network=network())
        other = pca_plane({"adam": states(3, first=9)}, network=network())
        grown, same = plane.with_networks(other.networks), plane.with_checkpoints({"adam": states(3, first=9)})
        assert grown.networks == same.networks
        assert [network.role.role for network in grown.networks] == ["checkpoint"] * 7
        np.testing.assert_array_equal(grown.projection.x, same.projection.x)
        assert plane.with_networks(plane.networks).networks == plane.networks

    @pytest.mark.parametrize("factor", [0.2, 2, 3, 30])
    def test_axes_hold_everybody(self, factor):
        plane = pca_plane(states(4), network=network())
        far = {name: factor * value for name, value in network(50).state_dict().items()}
        grown = plane.with_checkpoints(networks={"far": far})
        x, y = grown.axes(5)
        for own, axis, values in zip(plane.axes(5), (x, y), (grown.projection.x, grown.projection.y), strict=True):
            ends = np.array([min(values.min(), own[0]), max(values.max(), own[-1])])
            wanted = ends + 0.2 * np.ptp(ends) * np.array([-int(ends[0] < own[0]), int(ends[1] > own[-1])])
            step = (axis[-1] - axis[0]) / (len(axis) - 1)
            np.testing.assert_allclose(np.diff(axis), step)
            if len(axis) == len(own):  # spread anew, or everybody was inside
                np.testing.assert_allclose(axis[[0, -1]], wanted)
            else:
                # Its own points, and others with the same step, no more than it takes.
                assert len(axis) <= 4 * len(own)
                assert set(own.tolist()) <= set(axis.tolist())
                assert 0 <= wanted[0] - axis[0] < step * 1.001
                assert 0 <= axis[-1] - wanted[1] < step * 1.001

    def test_random_axes_are_only_widened(self):
        plane = random_plane(network(), seed=0)
        near = plane.with_checkpoints(networks={"near": plane.point((0.5, -0.25))})
        np.testing.assert_array_equal(near.axes(5)[0], plane.axes(5)[0])
        np.testing.assert_allclose([near.projection.x[0], near.projection.y[0]], [0.5, -0.25], atol=1e-5)
        x, y = plane.with_checkpoints(networks={"beside": plane.point((1.2, 0.0))}).axes(5)
        # 1.2 and a fifth of 2.2 make 1.64.
        np.testing.assert_allclose(x, [-1, -0.5, 0, 0.5, 1, 1.5, 2])
        np.testing.assert_array_equal(y, plane.axes(5)[1])
        x, _ = plane.with_checkpoints(networks={"far": plane.point((30.0, 0.0))}).axes(5)
        np.testing.assert_allclose(x, np.linspace(-1, 30 + 0.2 * 31, 5), rtol=1e-5)

    @pytest.mark.parametrize(
        ("arguments", "options", "error", "match"),
        [
            ((), {}, ValueError, "with_checkpoints needs runs or networks, such as"),
            (([1],), {}, TypeError, "runs must be a dict from the runs' names"),
            (({"adam": 3},), {}, TypeError, r"runs\['adam'\] must be a list of checkpoints or a RunDirectory"),
            (({"adam": []},), {}, ValueError, "runs must be runs with at least one checkpoint each"),
            ((None, [1]), {}, TypeError, "networks must be a dict from names to weights"),
            ((None, {" ": network()}), {}, ValueError, "a key of networks must be a name of 1 to 100"),
            (({"sgd": states(2, 7)},), {}, ValueError, "names that the plane does not have yet"),
            (({"a": states(2, 7)}, {"a": network(9)}), {}, ValueError, "names that the plane does not have yet"),
            (({"a": states(2, 7)},), {"name": "b"}, ValueError, "name is for a plane whose own run has no name yet"),
            (({"a": states(2, 7)},), {"numbers": {"b": [1]}}, ValueError, "a dict with the names of runs"),
            ((None, {"a": nn.Linear(2, 2)}), {}, CheckpointError, "does not fit the network"),
        ],
    )
    def test_wrong_arguments(self, arguments, options, error, match):
        plane = pca_plane({"sgd": states(4)}, network=network())
        with pytest.raises(error, match=match):
            plane.with_checkpoints(*arguments, **options)

    def test_weights_that_are_not_finite(self):
        broken = {name: value * np.nan for name, value in network(9).state_dict().items()}
        with pytest.raises(CheckpointError, match=r"checkpoints\[0\] holds NaN or infinite values in '0.weight'"):
            random_plane(network()).project([broken])
