"""Which run a checkpoint belongs to, who the origin is, and what networks are called."""

import numpy as np
import pytest
import torch
from torch import nn

from collectors import SummaryCollector
from collectors.run_directory import RunDirectory
from collectors.run_directory.importing import import_checkpoints
from landscape.planes import custom_plane, line_between, pca_plane, plane_through, random_line, random_plane
from landscape.planes.networks import columns_of


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 20))


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
