"""The networks on a plane: which run they belong to, what they are called, who the origin is, and where they lie."""

import numpy as np
import pytest
import torch
from examples import train_run
from least_squares import least_squares
from torch import nn

from collectors import SummaryCollector
from collectors.errors import CheckpointError
from collectors.run_directory import RunDirectory
from collectors.run_directory.importing import import_checkpoints
from landscape.planes import custom_plane, line_between, pca_plane, plane_through, random_line, random_plane
from landscape.planes.networks import columns_of, runs_of


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 20))


def states(count, first=0):
    return [dict(network(seed).state_dict()) for seed in range(first, first + count)]


def files(folder, names, first=0):
    paths = [folder / (name if name.endswith(".pt") else f"{name}.pt") for name in names]
    for path, state in zip(paths, states(len(paths), first), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path)
    return paths


def who(plane, *names):
    """Returns columns of the networks on a plane; the only one as it is."""
    columns = columns_of(plane.networks)
    return columns[names[0]] if len(names) == 1 else tuple(columns[name] for name in names)


def trained(folder, steps, seed=0):
    """Collects steps 0, 5 and 10 of a training."""
    module = network(seed)
    collector = SummaryCollector(
        folder, keep_default_action=False, collect_landscape={"unit": "step", "intervals": [[0, 5, 10]]}
    )
    with collector.watch(module) as run:
        for _ in range(steps):
            with torch.no_grad():
                for tensor in module.parameters():
                    tensor += 0.1 * torch.randn_like(tensor)
            run.step()


class TestNetworks:
    def test_three_networks_are_no_run(self):
        plane = plane_through(network(0), network(1), network(2), names=("SGD", "Adam", "average"))
        assert who(plane, "run", "name") == ((-1, -1, -1), ("SGD", "Adam", "average"))
        assert (plane.origin_role.role, plane.origin_role.name) == ("named network", "SGD")

    def test_a_dict_names_them(self):
        named = plane_through({"SGD": network(0), "Adam": network(1), "average": network(2)})
        listed = plane_through(network(0), network(1), network(2), names=["SGD", "Adam", "average"])
        assert (named.networks, named.identity) == (listed.networks, listed.identity)
        assert who(line_between({"here": network(0), "there": network(1)}), "name") == ("here", "there")

    def test_files_have_their_own_names_and_others_the_arguments(self, tmp_path):
        one, two = files(tmp_path, ["sgd.pt", "adam.pt"])
        assert who(line_between(one, str(two), network=network()), "name") == ("sgd", "adam")
        assert who(line_between(one, network(3)), "name") == ("a", "b")

    @pytest.mark.parametrize(
        ("arguments", "options", "error", "match"),
        [
            ((0, 1, 2), {"names": ("SGD", "Adam")}, ValueError, "names must be a list of 3 different names"),
            ((0, 1, 2), {"names": ("SGD", "SGD", "a")}, ValueError, "names must be a list of 3 different names"),
            ((0, 1, 2), {"names": "abc"}, TypeError, "names must be a list"),
            ((0, 1, 2), {"names": (1, 2, 3)}, TypeError, r"names\[0\] must be a str"),
            ((0, 1, 2), {"names": ("a", " ", "c")}, ValueError, r"names\[1\] must be a name of 1 to 100 printable"),
            ((0, 1), {}, TypeError, "c must be weights, but got None"),
            ((0,), {}, TypeError, "a must be a dict from 3 names to weights where b and c are left out"),
        ],
    )
    def test_wrong_names(self, arguments, options, error, match):
        with pytest.raises(error, match=match):
            plane_through(*map(network, arguments), **options)

    def test_a_dict_has_its_own_names(self):
        with pytest.raises(ValueError, match="names must be left out where a is a dict"):
            line_between({"a": network(0), "b": network(1)}, names=("a", "b"))

    def test_an_origin_of_which_nothing_is_known_is_an_origin(self):
        for plane in (random_plane(network()), random_line(network())):
            assert (plane.origin_role.role, plane.networks) == ("origin", ())
        named = random_plane(network(), name="untrained")
        assert (named.origin_role.role, named.origin_role.name) == ("named network", "untrained")
        direction = {name: torch.ones_like(value) for name, value in network().named_parameters()}
        assert custom_plane(network(), [direction], name="SGD").origin_role.name == "SGD"
        with pytest.raises(TypeError, match="name must be a str, but got int"):
            random_plane(network(), name=3)  # type: ignore[arg-type]


class TestRuns:
    def test_a_list_is_one_run_whose_end_may_not_be_its_last(self):
        plane = pca_plane(states(4), network=network(), numbers=[2, 4, 6, 9])
        assert who(plane, "run", "runs", "number") == ((0, 0, 0, 0), ("",), (2, 4, 6, 9))
        assert (plane.origin_role.role, plane.origin_role.number) == ("checkpoint", 9)

    def test_a_dict_is_several_runs_through_the_end_of_the_first(self):
        found = {"SGD": states(3), "Adam": states(4, first=10)}
        plane = pca_plane(found, network=network(), numbers={"SGD": [0, 5, 10]})
        assert who(plane, "runs", "run") == (("SGD", "Adam"), (0, 0, 0, 1, 1, 1, 1))
        assert who(plane, "number") == (0, 5, 10, 0, 1, 2, 3)
        assert (plane.projection.x[2], plane.projection.y[2]) == (0.0, 0.0)
        np.testing.assert_array_equal(plane.origin["0.weight"], found["SGD"][-1]["0.weight"].numpy())
        assert (plane.origin_role.run, plane.origin_role.number) == ("SGD", 10)
        # The same directions as of all checkpoints together, with the origin at the end.
        joined = pca_plane([*found["Adam"], *found["SGD"]], network=network())
        np.testing.assert_array_equal(plane.directions[0]["0.weight"], joined.directions[0]["0.weight"])
        assert plane.identity != joined.identity

    @pytest.mark.parametrize(
        ("folders", "runs", "run"),
        [
            (["sgd/ckpt_dir", "sgd/ckpt_dir", "adam/ckpt_dir", "adam/ckpt_dir"], ("sgd", "adam"), (0, 0, 1, 1)),
            # Folders of one name get more of their path, and those of checkpoints are one run.
            (["sgd/run", "sgd/run", "adam/run", "adam/run"], ("sgd/run", "adam/run"), (0, 0, 1, 1)),
            (["checkpoint-500", "checkpoint-1000", "checkpoint-1500"], ("",), (0, 0, 0)),
        ],
    )
    def test_files_of_several_folders(self, tmp_path, folders, runs, run):
        paths = files(tmp_path, [f"{folder}/{number}.pt" for number, folder in enumerate(folders)])
        assert who(pca_plane(paths, network=network()), "runs", "run") == (runs, run)

    def test_a_folder_for_each_checkpoint_gives_no_path_and_says_so(self, tmp_path):
        paths = files(tmp_path, ["first/model.pt", "second/model.pt", "third/model.pt"])
        with pytest.warns(UserWarning, match="3 checkpoints lie in as many folders.*no path joins them.*dict"):
            plane = pca_plane(paths, network=network())
        assert who(plane, "run") == (0, 1, 2)
        assert who(pca_plane({"SGD": paths}, network=network()), "run") == (0, 0, 0)

    def test_run_directories_bring_their_numbers_and_say_what_is_final(self, tmp_path):
        for name, seed in (("sgd", 0), ("adam", 9)):
            trained(tmp_path / name, steps=10, seed=seed)
        found = [RunDirectory(tmp_path / name) for name in ("sgd", "adam")]
        plane = pca_plane(found, network=network())
        assert who(plane, "runs", "number") == (("sgd", "adam"), (0, 5, 10, 0, 5, 10))
        assert who(plane, "final") == (False, False, True, False, False, True)
        assert (plane.origin_role.role, plane.origin_role.run) == ("final weights", "sgd")
        part = pca_plane({"SGD": found[0], "Adam": found[1]}, network=network(), numbers={"SGD": [0, 5]})
        assert part.origin_role.role == "checkpoint"
        assert who(part, "final") == (False, False, False, False, True)
        assert pca_plane(found[0], network=network()).origin_role.role == "final weights"

    def test_the_last_checkpoint_may_not_be_the_end_of_training(self, tmp_path):
        trained(tmp_path / "longer", steps=20)
        import_checkpoints(tmp_path / "imported", files(tmp_path / "files", "abc"), numbers=[0, 5, 10])
        for name in ("longer", "imported"):
            plane = pca_plane(RunDirectory(tmp_path / name), network=network())
            assert who(plane, "final") == (False,) * 3
            assert (plane.origin_role.role, plane.origin_role.number) == ("checkpoint", 10)

    @pytest.mark.parametrize(
        ("checkpoints", "numbers", "error", "match"),
        [
            ({}, None, ValueError, "checkpoints must be at least one run"),
            ({"SGD": 5}, None, TypeError, r"checkpoints\['SGD'\] must be a list of checkpoints or a Run"),
            ({"SGD": 3, "": 3}, None, ValueError, "a key of checkpoints must be a name of 1 to 100"),
            ({"SGD": 3, "Adam": 0}, None, ValueError, "checkpoints must be runs with at least one checkpoint each"),
            ({"SGD": 3, "Adam": 2}, [1, 2, 3], TypeError, "numbers must be a dict from the runs' names"),
            ({"SGD": 3, "Adam": 2}, {"sgd": [1]}, ValueError, "numbers must be a dict with the names of runs"),
            ({"SGD": 3, "Adam": 2}, {"Adam": [1]}, ValueError, r"numbers\['Adam'\] must be a list with one number"),
            (3, [1, 2], ValueError, "numbers must be a list with one number for each of the 3"),
            (3, [1, "2", 3], TypeError, r"numbers\[1\] must be an int"),
            (3, "123", TypeError, "numbers must be a list of numbers"),
        ],
    )
    def test_wrong_runs(self, checkpoints, numbers, error, match):
        if isinstance(checkpoints, dict):
            given = {name: states(count, 7 * place) for place, (name, count) in enumerate(checkpoints.items())}
            if len(given) == 1:
                given = checkpoints
        else:
            given = states(checkpoints)
        with pytest.raises(error, match=match):
            pca_plane(given, network=network(), numbers=numbers)

    def test_files_and_weights_in_memory_need_a_dict(self, tmp_path):
        paths = files(tmp_path, ["a/1.pt", "b/1.pt"])
        with pytest.raises(ValueError, match=r"must say which run each of them belongs to.*Pass a dict"):
            pca_plane([*paths, *states(2, 5)], network=network())
        with pytest.raises(ValueError, match="numbers must be left out for files of several folders"):
            pca_plane(paths, network=network(), numbers=[1, 2])


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
