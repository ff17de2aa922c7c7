"""``refine``, ``widen`` and other grids on a file that is there: only what is missing is measured."""

import functools
import hashlib
import itertools
import os
import shutil
import warnings

import numpy as np
import pytest
import torch
from examples import FIRST, SECOND, batch_norm, bowl, bowl_loss, bowl_plane
from landscape_examples import write_landscape
from remote_stores import empty_memory

from landscape import Landscape, MeasurementPlan, SummaryLandscape, evaluate, line_between, random_plane
from landscape.errors import LandscapeGridError, LandscapeIdentityError, PlaneError
from landscape.functions import refine, widen
from landscape.grid.landscape_file import read_landscape
from landscape.grid.resume import UNDER_WAY
from landscape.planes import custom_plane, plane_through, random_line
from landscape.planes.plane_file import directions_path
from landscape.record.checks import PointStatus
from workers import FunctionEvaluator

HOW = {"progress": False, "device_ids": [0]}
PLAN = MeasurementPlan(batch_size=32)


@pytest.fixture(autouse=True)
def fixed_date(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def shifted(values):
    network = bowl()[1]
    network.weight.data += torch.from_numpy(values)
    return network


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def measure(path, size=6, callback_fn=bowl, **more):
    return evaluate(bowl_plane(), callback_fn, size=size, output=path, plan=PLAN, **HOW, **more)


@pytest.fixture
def path(tmp_path):
    """The file of a bowl on 6 x 6 points."""
    return measure(tmp_path / "a.h5").path


@pytest.fixture
def untouched(path):
    """The same, which must stay as it is."""
    before = digest(path)
    yield path
    assert digest(path) == before


def measured(landscape):
    return landscape.status == PointStatus.MEASURED


def unit_plane(callback_fn):
    axes = [{"place": np.array([1.0, 0.0])}, {"place": np.array([0.0, 1.0])}]
    return custom_plane({"place": np.zeros(2)}, axes, network=callback_fn().description.space)


def bowl_with(function):
    """Returns the callback_fn of a bowl whose loss is a function of the usual one, outputs and targets."""

    def callback_fn():
        loss, *rest = bowl()
        return functools.partial(function, loss), *rest

    return callback_fn


def stopping(after):
    """Returns a callback_fn that interrupts at a point, as Ctrl-C does."""
    calls = itertools.count(1)

    def counted(loss, outputs, targets):
        if next(calls) == after:
            raise KeyboardInterrupt
        return loss(outputs, targets)

    return bowl_with(counted)


@pytest.mark.parametrize(("fine", "change"), [(11, {"size": 11}), ((11, 6), {"factor": (2, 1)})])
def test_a_refined_file_is_the_one_that_is_measured_at_once(path, tmp_path, fine, change):
    at_once = measure(tmp_path / "b.h5", fine)
    refined = refine(path, bowl, plane=bowl_plane(), **change, **HOW)
    assert digest(path) == digest(at_once.path)
    assert refined.path == path
    assert refined.report.measured == at_once.loss.size - 36 + 1  # and the origin, which is checked


@pytest.mark.slow
def test_a_line(tmp_path):
    first, second = bowl()[1], bowl()[1]
    second.weight.data += 1
    moving = {"normalization": "none", "perturb_one_dimensional": True}
    for name, line in (("points", line_between(first, second)), ("random", random_line(first, seed=3, **moving))):
        path = tmp_path / f"{name}.h5"
        evaluate(line, bowl, size=7, output=path, plan=PLAN, **HOW)
        evaluate(line, bowl, size=13, output=tmp_path / "at_once.h5", plan=PLAN, overwrite=True, **HOW)
        assert refine(path, bowl, size=13, plane=line, **HOW).report.measured == 7
        assert digest(path) == digest(tmp_path / "at_once.h5")
        # Thirds of a cell are rounded in one way here, and in another way in an axis that is made at once.
        finer = refine(path, bowl, factor=3, plane=line, **HOW)
        wide = widen(path, bowl, limits=(-2, 2), plane=line, **HOW)
        for landscape in (finer, wide):
            np.testing.assert_array_equal(landscape.loss, evaluate(line, bowl, x=landscape.x, plan=PLAN, **HOW).loss)


def test_only_new_points_are_computed(tmp_path):
    calls = []

    def callback_fn():
        def function(weights):
            calls.append(tuple(weights["place"]))
            return {"loss": float(np.square(weights["place"]).sum()), "height": float(weights["place"][0])}

        return FunctionEvaluator(function, {"place": np.zeros(2)})

    plane, path = unit_plane(callback_fn), tmp_path / "a.h5"
    before = evaluate(plane, callback_fn, size=(7, 5), output=path, **HOW)
    calls.clear()
    after = refine(path, callback_fn, factor=(3, 2), plane=plane, **HOW)
    assert after.loss.shape == (9, 19)
    old = {(x, y) for x in before.x for y in before.y}
    looked_at = {(0.0, 0.0), *((x, y) for x in before.x[[0, -1]] for y in before.y[[0, -1]])}
    assert not (set(calls) & old) - looked_at
    assert after.report.measured == 9 * 19 - 35 + 1
    for name in ("loss", "height"):
        np.testing.assert_array_equal(after[name][::2, ::3], before[name])
        assert np.isfinite(after[name]).all()


@pytest.mark.parametrize("change", [{"limits": (-1.7, 2.05, -1, 1.3)}, {"margin": 0.5}, {"limits": (-3, 3)}])
def test_a_wider_landscape_keeps_every_point(path, tmp_path, change):
    before = Landscape.load(path)
    wide = widen(path, bowl, plane=bowl_plane(), **change, **HOW)
    low, high = (-2, 2) if "margin" in change else change["limits"][:2]
    for axis, old in ((wide.x, before.x), (wide.y, before.y)):
        np.testing.assert_allclose(np.diff(axis), 0.4, rtol=1e-9)
        assert set(old) <= set(axis)
    assert low - 0.4 < wide.x[0] <= low
    assert high <= wide.x[-1] < high + 0.4
    assert measured(wide).all()
    assert wide.report.measured == wide.loss.size - 36 + 1
    at_once = evaluate(bowl_plane(), bowl, x=wide.x, y=wide.y, output=tmp_path / "b.h5", plan=PLAN, **HOW)
    assert digest(path) == digest(at_once.path)
    np.testing.assert_allclose(wide.loss, [[bowl_loss(x, y) for x in wide.x] for y in wide.y], rtol=1e-6)
    again = widen(path, bowl, plane=bowl_plane(), **change, **HOW)
    assert again.report.measured == 1
    assert digest(path) == digest(at_once.path)


def test_a_margin_adds_no_cell_beyond_what_it_asks_for_around_networks_that_were_added(tmp_path):
    plane = bowl_plane().with_checkpoints(networks={"EMA": shifted(1.5 * np.array(FIRST))})
    before = evaluate(plane, bowl, size=6, output=tmp_path / "a.h5", plan=PLAN, **HOW)
    np.testing.assert_allclose(before.x[[0, -1]], [-1, 2.2])
    # From -1.4 to a fifth of 2.9 beyond 1.5, which is 2.08.
    wide = widen(before.path, bowl, plane=plane, margin=0.2, **HOW)
    np.testing.assert_allclose(wide.x[[0, -1]], [-1.4, 2.2])
    np.testing.assert_allclose(wide.y[[0, -1]], [-1.4, 1.4])


@pytest.mark.slow
def test_the_landscapes_of_a_run_need_nothing_but_the_file(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    SummaryLandscape(folder).gen_landscapes_with_multi_process(
        batch_norm, {"num_samples": 40, "landscape_size": 3}, samples="random", seed=5, buffers="recalibrate", **HOW
    )
    fine = SummaryLandscape(folder).gen_landscapes_with_multi_process(
        batch_norm, {"num_samples": 40, "landscape_size": 5}, samples="random", seed=5, buffers="recalibrate",
        name="fine", plan=folder / "landscape_0-4_pca.h5", **HOW,
    )  # fmt: skip
    for wanted in fine:
        path = folder / wanted.path.name.replace("fine", "landscape")
        refined = refine(path, batch_norm, size=5, **HOW)
        assert digest(path) == digest(wanted.path)
        assert refined.report.measured == 25 - 9 + 1
        wide = widen(path, batch_norm, margin=0.3, **HOW)
        kept = np.isin(np.round(wide.x, 9), np.round(wanted.x, 9))
        assert 5 == kept.sum() < len(wide.x)
        found = wide.checkpoints
        if found is not None:
            assert wide.x[0] <= found.x.min() - 0.3 * np.ptp(found.x)
            np.testing.assert_array_equal(found.metrics["loss"], wanted.checkpoints.metrics["loss"])
        else:
            assert wide.x[0] <= -1.6


def drawn_beside_its_run(trained, project):
    """Returns a landscape in the folder "pictures" of a project, whose run is in its folder "run"."""
    shutil.copytree(trained, project / "run")
    options = {"landscape_size": 3, "create_landscape": {"train": False}}
    (landscape,) = SummaryLandscape(project / "run").gen_landscapes_with_multi_process(
        batch_norm, options, output=project / "pictures", **HOW
    )
    return landscape


def test_a_file_elsewhere_says_where_its_run_is(trained, tmp_path):
    landscape = drawn_beside_its_run(trained, tmp_path / "project")
    assert landscape.attributes["run_directory"] == "../run"
    (tmp_path / "project").rename(tmp_path / "moved")
    path = tmp_path / "moved" / "pictures" / landscape.path.name
    bowl_plane().save(directions_path(path))  # what another landscape of that name left
    assert refine(path, batch_norm, factor=2, **HOW).loss.shape == (5, 5)
    shutil.move(path, tmp_path / "alone.h5")
    text = r"without the checkpoints .* Pass the run directory as run=, or in Python plane="
    with pytest.raises(PlaneError, match=text):
        refine(tmp_path / "alone.h5", batch_norm, factor=2, **HOW)
    assert refine(tmp_path / "alone.h5", batch_norm, factor=2, run=tmp_path / "moved" / "run", **HOW).loss.size == 81


def test_a_plane_that_was_saved_beside_the_file_is_enough(tmp_path):
    path = tmp_path / "a.h5"
    measure(path, save_directions=True)
    assert refine(path, bowl, factor=2, **HOW).report.measured == 85 + 1
    assert digest(path) == digest(measure(tmp_path / "b.h5", 11).path)
    points = tmp_path / "points.h5"
    plane = plane_through(*(shifted(values) for values in np.eye(3, 4)))
    before = evaluate(plane, bowl, size=5, output=points, save_directions=True, plan=PLAN, **HOW)
    wide = widen(points, bowl, margin=0.5, **HOW)
    np.testing.assert_allclose(wide.x, [-0.55, -0.2, 0.15, 0.5, 0.85, 1.2, 1.55])
    np.testing.assert_array_equal(wide.checkpoints.metrics["loss"], before.checkpoints.metrics["loss"])
    assert wide.report.measured == wide.loss.size - 25 + 1


def test_a_plane_is_saved_before_anything_is_measured_so_that_interrupted_files_are_refined(tmp_path):
    path = tmp_path / "a.h5"

    def interrupted(loss, outputs, targets):
        if path.exists():
            raise KeyboardInterrupt
        return loss(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        measure(path, callback_fn=bowl_with(interrupted), save_directions=True)
    assert not Landscape.load(path).complete
    assert refine(path, bowl, factor=2, **HOW).complete


def test_a_landscape_of_another_plane_keeps_the_directions_that_lie_beside_it(tmp_path):
    path, beside = tmp_path / "a.h5", tmp_path / "a_directions.safetensors"
    measure(path, 3, save_directions=True)
    before = digest(beside)
    other = bowl_plane(SECOND, FIRST)
    with pytest.raises(LandscapeIdentityError):
        evaluate(other, bowl, size=3, output=path, plan=PLAN, save_directions=True, **HOW)
    assert digest(beside) == before
    # Also where the landscape itself was moved away.
    path.rename(tmp_path / "moved.h5")
    with pytest.raises(LandscapeIdentityError, match="holds the directions of another landscape"):
        evaluate(other, bowl, size=3, output=path, plan=PLAN, save_directions=True, **HOW)
    assert digest(beside) == before
    assert not path.exists()
    evaluate(other, bowl, size=3, output=path, plan=PLAN, save_directions=True, overwrite=True, **HOW)
    assert digest(beside) != before


def test_directions_that_an_overwritten_landscape_left_are_not_those_of_the_new_one(tmp_path):
    path = measure(tmp_path / "a.h5", 3, save_directions=True).path
    other = bowl_plane(SECOND, FIRST)
    evaluate(other, bowl, size=3, output=path, overwrite=True, **HOW)
    with pytest.raises(PlaneError, match=r"a_directions\.safetensors, .* is not beside it or is another"):
        refine(path, bowl, factor=2, **HOW)
    assert refine(path, bowl, factor=2, plane=other, **HOW).loss.shape == (5, 5)


@pytest.mark.slow
def test_groups_of_a_function_are_measured_on_the_new_points_where_it_is_passed_again(tmp_path):
    def groups(inputs, targets):
        return targets % 2

    plane, path = random_line(batch_norm()[1], seed=1), tmp_path / "a.h5"
    before = evaluate(plane, batch_norm, size=3, output=path, groups=groups, **HOW)
    with pytest.raises(ValueError, match="groups must be given: the function that made those"):
        refine(path, batch_norm, factor=2, plane=plane, **HOW)
    odd = refine(path, batch_norm, factor=2, plane=plane, groups=groups, **HOW)
    np.testing.assert_array_equal(odd["loss[1]"][::2], before["loss[1]"])
    assert np.isfinite(odd["loss[1]"]).all()


@pytest.mark.slow
def test_limits_and_margin_of_a_run(trained, tmp_path):
    def measured_with(name, **reach):
        return SummaryLandscape(trained).gen_landscapes_with_multi_process(
            batch_norm, {"landscape_size": 3}, output=tmp_path / name, **reach, **HOW
        )

    path, random = measured_with("margin", margin=0.5)
    for axis, values in ((path.x, path.checkpoints.x), (path.y, path.checkpoints.y)):
        assert axis[-1] == pytest.approx(values.max() + 0.5 * np.ptp(values))
    assert (random.x[0], random.y[-1]) == (-2, 2)
    for landscape in measured_with("limits", limits=[-0.5, 0.25, -2, 1]):
        assert (landscape.x[[0, -1]].tolist(), landscape.y[[0, -1]].tolist()) == ([-0.5, 0.25], [-2, 1])


def test_a_size_that_does_not_nest_goes_beside_the_file_and_says_which_size_would(untouched, tmp_path):
    text = r"12 x 12 points shares 4 of the 36 measured points .*a size of 11 x 11 would keep all of them.*a_12x12\.h5"
    with pytest.warns(UserWarning, match=text):
        refined = refine(untouched, bowl, size=12, plane=bowl_plane(), **HOW)
    assert refined.path == tmp_path / "a_12x12.h5"
    assert refined.report.measured == 144 - 4 + 1
    at_once = measure(tmp_path / "b.h5", 12)
    assert digest(refined.path) == digest(at_once.path)
    assert Landscape.load(untouched).loss[0, 0] == refined.loss[0, 0]
    with pytest.warns(UserWarning, match="shares 4 of the 36"):
        again = refine(untouched, bowl, size=12, plane=bowl_plane(), **HOW)
    assert again.report.measured == 1


def test_another_grid_in_evaluate_keeps_what_it_shares_and_never_loses_a_point(path):
    untouched = digest(path)
    for size in (5, 12):
        text = (
            rf"another grid, 6 x 6 points, .* and 32 of its 36 measured points .* {size} x {size} points(.|\n)*refine"
        )
        with pytest.raises(LandscapeGridError, match=text):
            measure(path, size)
        assert digest(path) == untouched
    assert measure(path, 11).report.measured == 121 - 36 + 1
    finer = digest(path)
    again = measure(path, 6)
    assert again.loss.shape == (11, 11)
    assert again.report.measured == 1
    assert digest(path) == finer
    assert measure(path, 6, overwrite=True).loss.shape == (6, 6)
    assert digest(path) == untouched


def test_a_finer_grid_that_is_not_finished_is_no_answer_to_a_coarse_one(tmp_path):
    path = tmp_path / "a.h5"
    measure(path, 11)
    data = read_landscape(path)
    data.status[10, 9] = PointStatus.PENDING
    for values in data.metrics.values():
        values[10, 9] = np.nan
    write_landscape(path, data)
    untouched = digest(path)
    with pytest.raises(LandscapeGridError, match=r"has every point of that grid, and more, and is not finished"):
        measure(path, 6)
    assert digest(path) == untouched


def test_the_precision_of_a_plan_is_that_of_the_file(tmp_path):
    network = torch.nn.Linear(40, 5)

    def single():
        return torch.nn.MSELoss(), network, (torch.ones(8, 40), torch.zeros(8, 5)), {}

    plan = MeasurementPlan(batch_size=8, precision="bfloat16")
    plane = random_plane(network)
    evaluate(plane, single, size=3, output=tmp_path / "a.h5", plan=plan, precision="bfloat16", **HOW)
    finer = refine(tmp_path / "a.h5", single, factor=2, plane=plane, plan=plan, **HOW)
    assert finer.loss.shape == (5, 5)
    assert finer.attributes["measurement_plan"]["precision"] == "bfloat16"


def test_another_place_keeps_both(untouched, tmp_path):
    refined = refine(untouched, bowl, factor=2, output=tmp_path / "fine.h5", plane=bowl_plane(), **HOW)
    assert refined.report.measured == 85 + 1
    assert digest(tmp_path / "fine.h5") == digest(measure(tmp_path / "at_once.h5", 11).path)


def test_failed_points_keep_their_tracebacks_until_they_are_measured(tmp_path):
    path = tmp_path / "a.h5"

    def broken(loss, outputs, targets):
        if outputs[0, 0] > 1.2:
            raise RuntimeError("this region is broken")
        return loss(outputs, targets)

    with pytest.warns(UserWarning, match="6 of 36 points failed"):
        before = measure(path, callback_fn=bowl_with(broken))
    assert (before.status[:, 5] == PointStatus.FAILED).all()
    assert np.isnan(before.loss[:, 5]).all()
    with pytest.raises(KeyboardInterrupt):
        refine(path, stopping(60), factor=2, plane=bowl_plane(), **HOW)
    halfway = Landscape.load(path)
    assert halfway.loss.shape == (11, 11)
    assert (measured(halfway)[::2, ::2] >= measured(before)).all()
    left = [place for place in halfway.errors if place.startswith("grid/")]
    assert left
    for place in left:
        row, column = map(int, place.removeprefix("grid/").split(","))
        assert (row % 2, column) == (0, 10)
        assert "this region is broken" in halfway.errors[place]
    whole = refine(path, bowl, factor=2, plane=bowl_plane(), **HOW)
    assert not whole.errors
    np.testing.assert_array_equal(whole.loss, measure(tmp_path / "b.h5", 11).loss)


def test_an_interruption_before_the_first_point_leaves_the_file_as_it_was(untouched):
    with pytest.raises(KeyboardInterrupt):
        refine(untouched, stopping(20), factor=2, plane=bowl_plane(), **HOW)


@pytest.mark.parametrize("after", [60, 100])
def test_an_interrupted_change_goes_on_with_the_same_call(path, tmp_path, after):
    before = Landscape.load(path)
    with pytest.raises(KeyboardInterrupt):
        refine(path, stopping(after), factor=2, plane=bowl_plane(), **HOW)
    halfway = Landscape.load(path)
    assert measured(halfway).sum() >= 36
    np.testing.assert_array_equal(halfway.loss[::2, ::2], before.loss)
    assert halfway.attributes[UNDER_WAY] == {"refine": [2, 2]}
    refine(path, bowl, factor=2, plane=bowl_plane(), **HOW)
    assert digest(path) == digest(measure(tmp_path / "b.h5", 11).path)
    assert refine(path, bowl, factor=2, plane=bowl_plane(), **HOW).loss.shape == (21, 21)


class TestErrors:
    def refined(self, path, callback_fn=bowl, **more):
        return refine(path, callback_fn, **{"factor": 2, "plane": bowl_plane(), **more}, **HOW)

    def test_another_identity(self, untouched):
        def other_data():
            loss, network, (inputs, targets), metrics = bowl()
            return loss, network, (inputs, targets + 1), metrics

        text = r"samples\.sha256(.|\n)*Return the same data, loss and metrics"
        with pytest.raises(LandscapeIdentityError, match=text):
            self.refined(untouched, other_data)
        other_plane = bowl_plane(FIRST, FIRST[::-1])
        with pytest.raises(LandscapeIdentityError, match=r"plane\.directions"):
            self.refined(untouched, plane=other_plane)
        with pytest.raises(LandscapeIdentityError, match=r"plane\.decomposition"):
            self.refined(untouched, plane=plane_through(*(shifted(values) for values in np.eye(3, 4))))

    def test_a_file_without_identity(self, path):
        data = read_landscape(path)
        for value in (None, {}, "text", {"plane": 3}, [1]):
            data.attributes["identity"] = value
            write_landscape(path, data)
            with pytest.raises(LandscapeIdentityError, match="does not say how it was measured"):
                self.refined(path, plane=None)

    def test_a_plane_that_only_python_knows(self, path, tmp_path):
        with pytest.raises(PlaneError, match=r"has directions of your own, which .*a_directions.*plane=plane"):
            self.refined(path, plane=None)
        line = random_line(bowl()[1], normalization="none", perturb_one_dimensional=True)
        evaluate(line, bowl, size=3, output=tmp_path / "b.h5", **HOW)
        with pytest.raises(PlaneError, match=r"goes through weights of no run, .*b_directions\.safetensors"):
            self.refined(tmp_path / "b.h5", plane=None)

    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            ({"size": None, "factor": None}, ValueError, "size= or factor= must be given"),
            ({"size": 11, "factor": 2}, ValueError, "^size= and factor= both say how fine .*; give one of them"),
            ({"factor": 1}, ValueError, "factor must be at least 2 along one of the axes"),
            ({"factor": 2.0}, TypeError, "factor must be an int"),
            ({"factor": (2, 2, 2)}, ValueError, "factor must be an int, or 2 ints"),
            ({"factor": None, "size": 5}, ValueError, r"size must be at least the number of points .*\(6\)"),
            ({"factor": None, "size": (11, 0)}, ValueError, r"size\[1\] must be an int of at least 1"),
            ({"plane": "plane"}, TypeError, "plane must be a Plane"),
            ({"seed": 3}, ValueError, "seed must be left out for Measure.regrid: the file says how it was measured"),
            ({"sede": 3}, TypeError, r"regrid\(\) got an unexpected keyword argument 'sede'"),
        ],
    )
    def test_arguments(self, untouched, change, error, text):
        with pytest.raises(error, match=text):
            self.refined(untouched, **change)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({}, "margin= or limits= must be given"),
            ({"margin": 1, "limits": (0, 1)}, "limits= and margin= both say where the grid ends; give one"),
            ({"margin": -1}, "margin must be a finite number of at least 0"),
            ({"limits": (1, 0)}, "limits must be coordinates that increase"),
        ],
    )
    def test_arguments_of_widen(self, untouched, change, text):
        with pytest.raises(ValueError, match=text):
            widen(untouched, bowl, plane=bowl_plane(), **change, **HOW)

    def test_arguments_of_evaluate(self):
        with pytest.raises(ValueError, match="x and y say where the grid ends; leave out limits and margin"):
            evaluate(bowl_plane(), bowl, x=[0, 1], y=[0, 1], limits=(0, 1), **HOW)
        line = random_line(bowl()[1], normalization="none", perturb_one_dimensional=True)
        with pytest.raises(ValueError, match="limits must be two numbers for a line"):
            evaluate(line, bowl, limits=(0, 1, 2, 3), **HOW)
        assert evaluate(line, bowl, size=3, limits=(0, 3), **HOW).x.tolist() == [0, 1.5, 3]

    def test_an_uneven_grid_has_a_factor_but_no_size(self, tmp_path):
        x = np.array([-1, 0, 0.25, 2])
        evaluate(bowl_plane(), bowl, x=x, y=x, output=tmp_path / "a.h5", **HOW)
        with pytest.raises(ValueError, match="not evenly spaced; pass factor"):
            self.refined(tmp_path / "a.h5", factor=None, size=7)
        fine = self.refined(tmp_path / "a.h5")
        assert fine.x.tolist() == [-1, -0.5, 0, 0.125, 0.25, 1.125, 2]
        assert fine.report.measured == 49 - 16 + 1


def valley(place):
    x, y = place
    return 0.3 * x**2 + 2 * (y - 0.4 * x) ** 2 + 0.2 * np.sin(2 * x + y)


def valley_callback():
    return FunctionEvaluator(lambda weights: float(valley(weights["place"])), {"place": np.zeros(2)})


@pytest.mark.parametrize("change", [{"factor": 2}, {"limits": (-1.5, 1.5)}])
def test_adaptive_sampling_stays_adaptive_and_honest(tmp_path, change):
    plane, path = unit_plane(valley_callback), tmp_path / "a.h5"
    before = evaluate(plane, valley_callback, size=33, output=path, sampling="adaptive", tolerance=0.02, **HOW)
    function = refine if "factor" in change else widen
    after = function(path, valley_callback, plane=plane, **change, **HOW)
    truth = np.array([[valley((x, y)) for x in after.x] for y in after.y])
    known = measured(after)
    np.testing.assert_allclose(after.loss[known], truth[known], rtol=1e-12)
    rows, columns = np.searchsorted(after.y, before.y), np.searchsorted(after.x, before.x)
    assert known[np.ix_(rows, columns)][measured(before)].all()
    assert (after.status[~known] == PointStatus.INTERPOLATED).all()
    report = after.attributes["sampling"]
    expected = {"mode": "adaptive", "tolerance": 0.02, "finished": True, "reached": True}
    assert expected.items() <= report.items()
    assert report["measured"] == known.sum() < known.size / 3
    assert report["held_out"] >= 0.02 * report["interpolated"]
    error = abs(after.loss - truth)
    assert error.max() / np.ptp(truth) < 0.02
    assert (after["loss_error"][known] == 0).all()
    same = change if function is widen else {"size": 65}
    everything = function(path, valley_callback, plane=plane, sampling="full", **same, **HOW)
    np.testing.assert_allclose(everything.loss, truth, rtol=1e-12)
    assert everything.report.measured == known.size - known.sum() + 1
    assert "loss_error" not in everything.metrics


def test_behind_a_url(tmp_path):
    with empty_memory() as memory:
        url = "memory://bucket/out/a.h5"
        measure(url)
        refined = refine(url, bowl, factor=2, plane=bowl_plane(), **HOW)
        assert refined.report.measured == 85 + 1
        assert memory.cat_file("/bucket/out/a.h5") == measure(tmp_path / "b.h5", 11).path.read_bytes()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            beside = refine(url, bowl, size=12, plane=bowl_plane(), **HOW)
        assert "a size of 11 x 11 would keep all of them" in str(caught[0].message)
        assert str(beside.path) == "memory:///bucket/out/a_12x12.h5"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a grid of 6 x 6 points shares")
def test_a_run_behind_a_url(trained):
    with empty_memory() as memory:
        memory.put(str(trained), "/bucket/run", recursive=True)
        options = {"landscape_size": 3, "create_landscape": {"result": False}}
        SummaryLandscape("memory://bucket/run").gen_landscapes_with_multi_process(batch_norm, options, **HOW)
        refined = refine("memory://bucket/run/landscape_0-4_pca.h5", batch_norm, factor=2, **HOW)
        assert refined.loss.shape == (5, 5)
        assert refined.report.measured == 25 - 9 + 1
        # Beside the file, and from a run on this machine, the run is found as well.
        beside = refine("memory://bucket/run/landscape_0-4_pca.h5", batch_norm, size=6, **HOW)
        assert "run_directory" not in beside.attributes
        SummaryLandscape(trained).gen_landscapes_with_multi_process(
            batch_norm, options, output="memory://bucket/out", **HOW
        )
        beside = refine("memory://bucket/out/landscape_0-4_pca.h5", batch_norm, size=6, **HOW)
        assert beside.attributes["run_directory"] == os.fspath(trained)


@pytest.mark.slow
def test_a_finer_grid_in_another_folder_finds_its_run_from_there(trained, tmp_path):
    landscape = drawn_beside_its_run(trained, tmp_path / "project")
    elsewhere = tmp_path / "far" / "away" / "finer.h5"
    elsewhere.parent.mkdir(parents=True)
    finer = refine(landscape.path, batch_norm, factor=2, output=elsewhere, **HOW)
    assert finer.attributes["run_directory"] == "../../project/run"
    # It is found without help.
    assert refine(elsewhere, batch_norm, factor=2, **HOW).loss.shape == (9, 9)
