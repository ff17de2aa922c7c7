"""``evaluate`` against closed forms and direct computations."""

import threading

import numpy as np
import pytest
import torch
from examples import ALL, FIRST, batch_norm, bowl, bowl_loss, bowl_plane
from torch.utils.data import DataLoader

from collectors.networks.readers import describe_network, read_network
from collectors.networks.torch_network import to_tensor
from landscape import Landscape, LandscapeError, MeasurementPlan, evaluate, line_between, random_plane
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.grid.experiment import GridExperiment
from landscape.planes import plane_through
from landscape.record.checks import PointStatus
from landscape.record.run import Run
from workers.errors import CallbackFunctionError, NondeterministicLossError

X, Y = np.linspace(-1, 1, 5), np.linspace(-0.5, 2, 3)
PLAN = MeasurementPlan(batch_size=32)
HOW = {"progress": False, "device_ids": [0]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "landscape.h5"


def measure(callback_fn=bowl, **more):
    return evaluate(bowl_plane(), callback_fn, x=X, y=Y, **HOW, **more)


def test_a_bowl_has_its_closed_form_values_at_the_right_indices():
    result = measure()
    assert result.loss.shape == (3, 5)
    expected = [[bowl_loss(x, y) for x in X] for y in Y]
    np.testing.assert_allclose(result.loss, expected, rtol=1e-6)
    assert result.origin.metrics["loss"] == pytest.approx(bowl_loss(0, 0), rel=1e-12)
    assert (result.status == PointStatus.MEASURED).all()


def test_a_line_has_no_y():
    first, second = bowl()[1], bowl()[1]
    with torch.no_grad():
        second.weight += torch.tensor(FIRST, dtype=torch.float64)
    result = evaluate(line_between(first, second), bowl, x=X, **HOW)
    np.testing.assert_allclose(result.loss, [bowl_loss(x, 0) for x in X], rtol=1e-6)
    assert result.y is None
    assert result.checkpoints.metrics["loss"].tolist() == pytest.approx([bowl_loss(0, 0), bowl_loss(1, 0)])


@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_network_goes_the_whole_path_and_stays_as_found(name, path):
    loss, network, dataset, metrics = ALL[name]()
    before = read_network(network)
    modes = [layer.training for layer in network.modules()]
    pointers = [tensor.data_ptr() for tensor in network.parameters()]
    plane = random_plane(network, seed=3)
    axes = {"x": np.linspace(-0.5, 0.5, 3), "y": np.linspace(-0.2, 0.4, 4)}
    result = evaluate(plane, lambda: (loss, network, dataset, metrics), output=path, **axes, **HOW)
    after = read_network(network)
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    assert [layer.training for layer in network.modules()] == modes
    assert [tensor.data_ptr() for tensor in network.parameters()] == pointers
    for row, column in ((0, 0), (3, 1), (2, 2)):
        point = plane.point((result.x[column], result.y[row]))
        tolerance = 2e-2 if name == "bfloat16" else 1e-5
        assert result.loss[row, column] == pytest.approx(direct_loss(name, point), rel=tolerance)
    assert result.origin.metrics["loss"] == pytest.approx(direct_loss(name, plane.point((0.0, 0.0))), rel=tolerance)
    assert (result.origin.x, result.origin.y) == (0.0, 0.0)
    stored = Landscape.load(path)
    assert stored.complete
    np.testing.assert_array_equal(stored.loss, result.loss)


def direct_loss(name, state):
    """Evaluates a fresh network at a state, all samples in one batch, without any of our machinery."""
    loss, network, dataset, _ = ALL[name]()
    tensors = {key: to_tensor(value) for key, value in state.items()}
    for info in describe_network(network).tensors:
        for alias in info.aliases:
            tensors[alias] = tensors[info.name]
    network.load_state_dict(tensors)
    network.eval()
    inputs, targets = dataset.dataset.tensors if isinstance(dataset, DataLoader) else dataset
    with torch.no_grad():
        return float(loss(network(inputs), targets))


def test_three_networks_lie_at_their_corners():
    networks = []
    for seed in range(3):
        torch.manual_seed(seed)
        networks.append(torch.nn.Linear(5, 3))
    inputs = torch.randn(20, 5)
    targets = torch.randn(20, 3)

    def callback_fn():
        return torch.nn.MSELoss(), torch.nn.Linear(5, 3), (inputs, targets), {}

    result = evaluate(plane_through(*networks), callback_fn, x=[0.0, 1.0], y=[0.0, 1.0], **HOW)
    with torch.no_grad():
        expected = [float(torch.nn.functional.mse_loss(network(inputs), targets)) for network in networks]
    np.testing.assert_allclose([result.loss[0, 0], result.loss[0, 1], result.loss[1, 0]], expected, rtol=1e-5)
    np.testing.assert_allclose(result.checkpoints.metrics["loss"], expected, rtol=1e-5)


def test_nan_and_inf_stay_what_they_are():
    def broken():
        _, network, dataset, metrics = bowl()
        return (lambda outputs, targets: torch.log(outputs[:, 0] - 0.5).mean()), network, dataset, metrics

    # At one of the corners the loss can be measured, so that nothing is left open.
    result = measure(broken)
    assert result.attributes["notes"] == []
    # log of a negative number, of zero, of a positive one
    assert np.isnan(result.loss[:, :2]).all()
    assert np.isneginf(result.loss[:, 2]).all()
    assert np.isfinite(result.loss[:, 3:]).all()
    assert (result.status == PointStatus.MEASURED).all()


def test_nan_everywhere_is_kept_and_said():
    def broken():
        loss, network, (inputs, targets), metrics = bowl()
        return loss, network, (inputs, targets * float("nan")), metrics

    at_first = "loss is not finite at the plane's origin, its corners and between them, which leaves"
    at_last = "NaN or infinite at every point; it is stored as it is"
    with pytest.warns(UserWarning, match=at_first), pytest.warns(UserWarning, match=at_last):
        result = measure(broken)
    assert np.isnan(result.loss).all()
    assert result.complete


def test_the_origin_must_reproduce_the_files_value(path):
    measure(output=path)

    def another_loss():
        loss, *rest = bowl()
        return (lambda outputs, targets: 2 * loss(outputs, targets)), *rest

    with pytest.raises(NondeterministicLossError, match="after the file's own value"):
        measure(another_loss, output=path)


def test_the_first_failed_point_is_one_of_the_grid():
    data = LandscapeData.empty(X, Y, DirectionsData(np.ones(2), cosine=0.0))
    data.status[1, 2] = PointStatus.FAILED
    data.errors = {"checkpoints/0/own": "of a checkpoint", "grid/1,2": "of a point"}
    with pytest.warns(UserWarning, match=r"1 of 15 points failed .* the first one is grid/1,2:\nof a point"):
        GridExperiment(bowl_plane(), (X, Y)).warn(data, Run())


class TestOutput:
    def test_no_folder_and_a_folder_instead_of_a_file(self, tmp_path):
        with pytest.raises(NotADirectoryError, match="output must lie in a directory that exists"):
            measure(output=tmp_path / "missing" / "landscape.h5")
        with pytest.raises(IsADirectoryError, match="output must be the path of a file"):
            measure(output=tmp_path)

    @pytest.mark.parametrize("name", ["loss.png", "loss.HTML"])
    def test_the_name_of_a_drawing(self, tmp_path, name):
        with pytest.raises(ValueError, match=r"path must be the file of what is measured, such as loss\.h5, but got"):
            measure().save(tmp_path / name)
        called = []
        with pytest.raises(ValueError, match=rf"output .*{name}"):
            measure(lambda: called.append(1) or bowl(), output=tmp_path / name)
        assert not called
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"x": [0, 0, 1]}, ValueError, "x must be a one-dimensional array of finite, increasing"),
        ({"x": [[0, 1]]}, ValueError, "x must be a one-dimensional"),
        ({"y": [0, np.nan]}, ValueError, "y must be a one-dimensional"),
        ({"x": "abc"}, TypeError, "x must be an array of numbers"),
    ],
)
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        evaluate(bowl_plane(), bowl, **{"x": list(X), "y": list(Y), "progress": False, **arguments})


def test_bad_plane_and_callback():
    with pytest.raises(TypeError, match="plane must be a Plane"):
        evaluate("plane", bowl)
    with pytest.raises(TypeError, match="callback_fn must be a function"):
        evaluate(bowl_plane(), 5)
    first, second = bowl()[1], bowl()[1]
    with torch.no_grad():
        second.weight += 1
    with pytest.raises(ValueError, match="y must be None for a line"):
        evaluate(line_between(first, second), bowl, x=X, y=Y)
    with pytest.raises(LandscapeError, match="the plane was made for another network"):
        evaluate(random_plane(torch.nn.Linear(300, 20)), bowl, **HOW)


class Locked:
    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, inputs, targets):
        return targets % 2


def test_groups_may_be_made_by_a_function_that_pickle_does_not_know():
    """Two workers get it as they get callback_fn."""

    def odd(inputs, targets):
        return targets % 2

    options = {"size": 3, "device_ids": [0, 1], "progress": False, "plan": PLAN}
    plane = random_plane(batch_norm()[1], seed=0)
    found, named = (evaluate(plane, batch_norm, groups=groups, **options) for groups in (odd, lambda _, t: t % 2))
    assert {"loss[0]", "loss[1]"} <= found.metrics.keys()
    np.testing.assert_array_equal(found["loss[1]"], named["loss[1]"])
    with pytest.raises(CallbackFunctionError, match="groups cannot be sent to the workers"):
        evaluate(plane, batch_norm, groups=Locked(), **options)
