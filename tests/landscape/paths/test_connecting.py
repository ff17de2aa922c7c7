"""Curves between two networks: fitted, measured, kept, interrupted."""

import warnings
from dataclasses import replace

import digits_networks
import numpy as np
import pytest
import torch
import wall
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from two_networks import INPUTS, TARGETS, build, callback_fn, trained

from collectors.errors import CheckpointError
from landscape import Landscape, Measure, evaluate, line_between
from landscape.errors import LandscapeError, LandscapeIdentityError, LandscapeWriteError, PlaneError
from landscape.figures import plot_routes
from landscape.functions import connect, measure_curvature, measure_points, widen
from landscape.paths.barrier import Barrier
from landscape.paths.fitting import write_curve
from landscape.paths.path import Path
from workers import FunctionEvaluator
from workers.errors import CurveError

OPTIONS = {"device_ids": [0], "progress": False}


def connected(*args, **options):
    return connect(trained(0), trained(1), callback_fn, *args, **OPTIONS, **options)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("curved") / "path.safetensors"


@pytest.fixture(scope="module")
def path(file):
    """A path of 200 steps between two networks with a barrier; its file must not be changed."""
    return connected(steps=200, output=file)


@pytest.mark.filterwarnings("ignore:the loss")
def test_the_best_bend_of_a_curved_valley_is_found():
    a, b = wall.Point(*wall.A), wall.Point(*wall.B)
    path = connect(a, b, wall.callback_fn, steps=400, learning_rate=0.1, **OPTIONS)
    np.testing.assert_allclose(path.curve.fitting.bends, wall.BEST_BEND, atol=2e-2)
    assert Measure(wall.callback_fn, **OPTIONS).barrier(path, points=9).height < 1e-3
    # The closed form of a parabola's length, from -1 to 1.
    assert path.length == pytest.approx(np.sqrt(5) + np.arcsinh(2) / 2, rel=1e-2)
    assert path.chord == 2
    np.testing.assert_allclose(path.point(0.5)["w"], [0, 1], atol=2e-2)
    np.testing.assert_allclose(path.bend()["w"], wall.BEST_BEND[0], atol=2e-2)


class Shortened(nn.Module):
    """An embedding that shortens rows of its weights between two uses of them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4, max_norm=0.5)

    def forward(self, words):
        first = self.embedding(words) @ self.embedding.weight.t()
        return (first + self.embedding(words) @ self.embedding.weight.t()).mean(1)


@pytest.mark.parametrize(
    "measure",
    [lambda *args, **how: connect(*args, **how), lambda a, _, *args, **how: measure_curvature(a, *args, **how)],
)
def test_weights_that_change_in_place(measure):
    torch.manual_seed(0)
    a, b = Shortened(), Shortened()
    words, targets = torch.randint(7, (20, 3)), torch.randint(7, (20,))
    with pytest.raises(LandscapeError, match=r"changes in place .*max_norm=None"):
        measure(a, b, lambda: (nn.CrossEntropyLoss(), Shortened(), (words, targets), {}), **OPTIONS)


class Scaled(nn.Module):
    """A network of vectors alone."""

    def __init__(self, value):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.full((4,), value)), nn.Parameter(torch.tensor(value))

    def forward(self, inputs):
        return (inputs * self.scale + self.shift).sum(1, keepdim=True)


def test_networks_whose_weights_are_vectors_or_zero():
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(20, 4, generator=generator), torch.randn(20, 1, generator=generator)
    zero, one = Scaled(0.0), Scaled(1.0)

    def call():
        return nn.MSELoss(), Scaled(0.0), samples, {}

    path = connect(zero, one, call, steps=3, **OPTIONS)
    assert path.chord == pytest.approx(np.sqrt(5))
    # The exact Hessian of a mean of squares.
    rows = torch.cat([samples[0], torch.full((20, 1), 4.0)], 1).double()
    exact = torch.linalg.eigvalsh(2 * rows.T @ rows / 20)
    curvature = measure_curvature(zero, call, top=1, **OPTIONS)
    assert float(curvature.eigenvalues[0, 0]) == pytest.approx(float(exact[-1]), rel=1e-4)


@pytest.mark.slow
def test_curve_goes_round_the_barrier_of_the_line(path):
    straight = evaluate(line_between(trained(0), trained(1)), callback_fn, x=np.linspace(0, 1, 9), **OPTIONS)
    found = Measure(callback_fn, **OPTIONS).barrier(path, points=9)
    assert Barrier.of(straight).height > 0.3
    assert found.height < 0.1 * Barrier.of(straight).height
    # Both ends are the networks themselves, and the middle is the state that the path gives.
    np.testing.assert_allclose(found.landscape.loss[[0, -1]], straight.loss[[0, -1]], rtol=1e-5)
    middle = build()
    middle.load_state_dict({name: torch.from_numpy(array) for name, array in path.point(0.5).items()})
    with torch.no_grad():
        expected = nn.functional.cross_entropy(middle(INPUTS), TARGETS).item()
    assert found.landscape.loss[4] == pytest.approx(expected, rel=1e-5)
    assert len(path.losses) == 200
    assert repr(path).startswith("Path(bezier of Sequential from a to b, 1 bend, 200 steps; length ")


@pytest.mark.slow
def test_landscape_of_a_path_says_what_it_is_and_is_continued(path, tmp_path):
    file = tmp_path / "curve.h5"
    first = Measure(callback_fn, **OPTIONS).barrier(path, points=5, output=file)
    kept = Path.load(tmp_path / "curve_path.safetensors")
    again = evaluate(kept, callback_fn, size=9, output=file, **OPTIONS)
    assert again.report.resumed >= 5
    facts = Landscape.load(file).attributes["path"]
    assert facts["t"] == np.linspace(0, 1, 9).tolist()
    assert facts["length"][-1] == pytest.approx(path.length)
    assert facts["distance_to_chord"][0] == 0
    settings = path.curve.settings
    assert facts["fitting"]["steps"] == settings.steps
    assert f"with 1 bend, fitted in {settings.steps} steps (seed {settings.seed})." in again.caption("profile").text
    # By the points themselves.
    a, b, middle = (np.concatenate([part.reshape(-1) for part in path.point(t).values()]) for t in (0, 1, 0.5))
    foot = a + (b - a) * ((middle - a) @ (b - a)) / ((b - a) @ (b - a))
    assert facts["distance_to_chord"][4] == pytest.approx(np.linalg.norm(middle - foot), rel=1e-4)
    assert again.attributes["decomposition"] == "path"
    assert again.plot_profile().get_xlabel().startswith("along the curve from a to b")
    assert Barrier.of(again).height >= first.height
    assert [again.checkpoints.name[row] for row in again.checkpoints.networks] == ["a", "b"]


def test_a_point_of_the_curve_is_that_of_its_landscape(path):
    landscape = evaluate(path.line(), callback_fn, size=3, **OPTIONS)
    found = measure_points(path.line(), callback_fn, [[0.5], [1.0]], **OPTIONS)
    np.testing.assert_allclose(found["loss"], landscape.loss[1:], rtol=1e-5)


def test_plane_holds_the_curve(path):
    plane = path.plane()
    assert [network.name for network in plane.networks] == ["a", "b", "bend"]
    for t, place in zip(np.linspace(0, 1, 5), path.routes(5)["curved"], strict=True):
        there = plane.point(place)
        for name, array in path.point(t).items():
            np.testing.assert_allclose(there[name], array, atol=2e-6)


def test_routes_are_drawn_over_the_plane(path):
    landscape = evaluate(path.plane(), callback_fn, size=7, margin=0.2, **OPTIONS)
    ax = plot_routes(landscape, path.routes(11))
    texts = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert {"straight", "curved"} <= set(texts)
    drawn = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    # To scale: the curve is as long in the picture as in weight space.
    steps = np.diff(drawn["curved"], axis=0)
    assert np.linalg.norm(steps, axis=1).sum() == pytest.approx(path.length, rel=1e-2)
    assert np.linalg.norm(drawn["straight"][1] - drawn["straight"][0]) == pytest.approx(path.chord, rel=1e-5)
    with pytest.raises(ValueError, match="routes must be a dict from names to coordinates"):
        plot_routes(landscape, {"a": np.zeros((3, 3))})
    with pytest.raises(TypeError, match="routes must be a dict"):
        plot_routes(landscape, [1, 2])


def test_the_barrier_of_a_curve_is_drawn_as_curved(path):
    measure = Measure(callback_fn, **OPTIONS)
    curved, straight = measure.barrier(path, points=3), measure.barrier(trained(0), trained(1), points=3)
    texts = [text.get_text() for text in curved.plot({"straight": straight}).figure.legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["curved", "straight"]
    with pytest.raises(ValueError, match="others must be ways of other names than 'curved', which is this one's"):
        curved.plot({"curved": straight})


def test_several_bends_and_polygons(tmp_path):
    path = connected("polygon", 3, steps=30)
    assert path.curve.fitting.bends.shape[0] == 3
    np.testing.assert_allclose(path.point(0.25)["0.weight"], path.bend(0)["0.weight"], atol=1e-6)
    assert path.plane().dimension == 2
    file = path.save(tmp_path / "polygon.safetensors")
    assert repr(Path.load(file)) == repr(path)


def test_batchnorm_is_recalibrated_along_the_curve():
    a, b = (digits_networks.train(digits_networks.build(seed), epochs=3, seed=seed) for seed in (0, 1))
    path = connect(a, b, digits_networks.callback_fn, steps=20, **OPTIONS)
    found = evaluate(path, digits_networks.callback_fn, size=3, **OPTIONS)
    assert found.attributes["buffers"] == "recalibrate"
    assert np.isfinite(found.loss).all()


@pytest.mark.slow
def test_file_of_a_path_is_read_back_and_kept_safe(path, file, tmp_path):
    loaded = Path.load(file)
    np.testing.assert_array_equal(loaded.curve.fitting.bends, path.curve.fitting.bends)
    assert loaded.curve.attributes == path.curve.attributes
    assert loaded.line().identity == path.line().identity
    before = file.read_bytes()
    plan = {**path.curve.attributes["measurement_plan"], "threads": "many"}
    write_curve(tmp_path / file.name, replace(path.curve, attributes={"measurement_plan": plan}))
    with pytest.raises(LandscapeError, match=r"path.safetensors was measured with a plan that cannot be used here"):
        connected(steps=200, output=tmp_path / file.name)
    with pytest.raises(LandscapeWriteError, match="exists and was left as it is"):
        path.save(file)
    assert file.read_bytes() == before
    with pytest.raises(CheckpointError):
        Path.load(tmp_path / "nowhere.safetensors")
    plane = line_between(trained(0), trained(1)).save(tmp_path / "line.safetensors")
    with pytest.raises(PlaneError, match="holds no path"):
        Path.load(plane)


@pytest.mark.slow
def test_a_path_whose_fitting_a_budget_ended_is_none_yet(tmp_path):
    file = tmp_path / "path.safetensors"
    with pytest.warns(UserWarning, match=r"ended the fitting after 1 of 4 steps. The same call continues from here"):
        begun = connected(steps=4, output=file, budget=1e-9)
    assert not begun.curve.complete
    assert len(begun.losses) == 1
    with pytest.raises(PlaneError, match=r"fitted for 1 of 4 steps. Call connect again"):
        Path.load(file)


def test_names_are_those_of_the_last_call(tmp_path):
    file = tmp_path / "path.safetensors"
    first, named = (connected(steps=2, output=file, names=names) for names in (None, ["SGD", "Adam"]))
    assert (first.names, named.names) == (("a", "b"), ("SGD", "Adam"))
    assert Path.load(file).names == ("SGD", "Adam")
    np.testing.assert_array_equal(named.losses, first.losses)


def test_a_loss_that_belongs_to_its_batches_gets_those_of_the_data_set():
    """On the line it does; of the network that callback_fn returns, every batch has the loss 0."""
    sizes = []

    def of_means(outputs, targets):
        if outputs.requires_grad:
            sizes.append(len(outputs))
        return (outputs.mean(0) ** 2).sum()

    def call():
        network = build()
        for parameter in network.parameters():
            nn.init.zeros_(parameter)
        return of_means, network, DataLoader(TensorDataset(INPUTS, TARGETS), 20), {}

    with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
        connect(trained(0), trained(1), call, steps=3, batch_size=5, **OPTIONS)
    assert sizes[-3:] == [20, 20, 20]


@pytest.mark.slow
def test_one_of_several_workers_fits_the_same():
    one, two = (
        connect(trained(0), trained(1), callback_fn, steps=20, device_ids=ids, progress=False) for ids in ([0], [0, 1])
    )
    np.testing.assert_allclose(two.curve.fitting.bends, one.curve.fitting.bends, atol=1e-4)


def test_wrong_arguments_say_what_is_right(path, tmp_path):
    a, b = trained(0), trained(1)
    for other, options, error, text in (
        (b, {"kind": "spline"}, ValueError, "kind must be"),
        (b, {"steps": 0}, ValueError, "steps must be an int of at least 1"),
        (a, {}, PlaneError, "have the same weights"),
    ):
        with pytest.raises(error, match=text):
            connect(a, other, callback_fn, **options, **OPTIONS)
    state = [{"w": np.full(2, value, np.float32)} for value in (0.0, 1.0)]
    function = FunctionEvaluator(lambda parameters: {"loss": float(parameters["w"].sum())}, state[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CurveError, match="FunctionEvaluator cannot fit a curve"):
            connect(*state, lambda: function, **OPTIONS)
    with pytest.raises(ValueError, match="t must be a number from 0 to 1"):
        path.point(1.5)
    with pytest.raises(ValueError, match="number must be an int from 0 to 0, but got 1"):
        path.bend(1)
    for options, text in (
        ({"margin": 0.2}, "a curve goes from 0 to 1"),
        ({"x": [-0.5, 0, 1]}, "x must be from 0 to 1, between which a curve goes"),
        ({"x": [0, 1, 1.5]}, "x must be from 0 to 1, between which a curve goes"),
    ):
        with pytest.raises(ValueError, match=text):
            evaluate(path, callback_fn, **options, **OPTIONS)
    with pytest.raises(ValueError, match="points must be from 0 to 1, between which a curve goes"):
        measure_points(path.line(), callback_fn, [[0.5], [1.5]], **OPTIONS)
    drawn = evaluate(path, callback_fn, size=3, output=tmp_path / "curve.h5", **OPTIONS)
    with pytest.raises(ValueError, match="limits must be from 0 to 1, between which a curve goes"):
        widen(drawn.path, callback_fn, limits=(0, 2), plane=path.line(), **OPTIONS)


def test_the_plan_is_the_users(path, tmp_path):
    other = replace(path.measurement_plan, batch_size=path.measurement_plan.batch_size // 2)
    found = connected(steps=3, plan=other)
    assert found.measurement_plan == other
    landscape = evaluate(path.line(), callback_fn, size=3, plan=other, output=tmp_path / "line.h5", **OPTIONS)
    as_there = connected(steps=3, plan=landscape.path)
    assert as_there.measurement_plan == other
    np.testing.assert_array_equal(as_there.curve.fitting.bends, found.curve.fitting.bends)
    with pytest.raises(TypeError, match="plan must be a MeasurementPlan, the path of a landscape file, or None"):
        connected(steps=3, plan=64)


def test_the_plane_goes_through_the_bend_that_is_farthest_from_the_line():
    """And not through that at whose place the curve is; whatever the networks are called."""
    path = connected("bezier", 3, steps=1, names=["bend", "b"])
    first, last = path.curve.first, path.curve.last
    names = [tensor.name for tensor in path.space.trainable]
    line, across = (
        np.concatenate([np.asarray(state[name], float).ravel() for name in names])
        for state in ({name: last[name] - first[name] for name in names}, {name: first[name] + 1.0 for name in names})
    )
    across -= line * (across @ line) / (line @ line)
    start = np.concatenate([np.asarray(first[name], float).ravel() for name in names])
    shifts = [share * line + height * across for share, height in ((0.25, 1.0), (0.5, -1.1), (0.75, 1.0))]
    bends = np.stack([start + shift for shift in shifts]).astype(path.curve.fitting.bends.dtype)
    bent = Path(replace(path.curve, fitting=replace(path.curve.fitting, bends=bends)))
    plane = bent.plane()
    assert [network.name for network in plane.networks] == ["bend", "b", "bend of the curve"]
    for name, array in bent.bend(1).items():
        np.testing.assert_allclose(plane.point((0.0, 1.0))[name], array, atol=1e-5)


def test_another_path_beside_a_landscape_stays(path, tmp_path):
    measure, other = Measure(callback_fn, **OPTIONS), path.save(tmp_path / "a_path.safetensors")
    bits, short = other.read_bytes(), connected("polygon", steps=1)
    with pytest.raises(LandscapeIdentityError, match=r"a_path.safetensors holds another path; .* overwrite=True"):
        measure.barrier(short, points=3, output=tmp_path / "a.h5")
    assert [other] == list(tmp_path.iterdir())
    assert other.read_bytes() == bits
    Measure(callback_fn, overwrite=True, **OPTIONS).barrier(short, points=3, output=tmp_path / "a.h5")
    assert Path.load(other).shape == short.shape


def test_a_curve_is_neither_kept_as_a_plane_nor_has_places_for_other_networks(path, tmp_path):
    line, other = path.line(), {"other": trained(2)}
    measure, keep = Measure(callback_fn, **OPTIONS), {"output": tmp_path / "a.h5", "save_directions": True}
    for measured, door in ((path, measure.barrier), (path, measure.grid), (line, measure.grid)):
        with pytest.raises(ValueError, match="save_directions must be left out for a path"):
            door(measured, **keep)
    with pytest.raises(PlaneError, match=r"a curve is no plane.*Path\.save"):
        line.save(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []
    for project in (lambda: line.project([trained(2)]), lambda: line.with_checkpoints(networks=other)):
        with pytest.raises(PlaneError, match=r"no network can be projected onto a curve.*Path\.plane"):
            project()
    assert path.plane().with_checkpoints(networks=other).projection.residual[-1] > 0
