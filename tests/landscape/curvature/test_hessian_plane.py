"""Planes along eigenvectors: known spectra, what the measured surface does along them, and saddles."""

import copy

import numpy as np
import pytest
import torch
from examples import Bowl
from saddles import LOSS, callback_fn, exact_hessian, saddle, samples
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import MeasurementPlan, Plane, evaluate, random_plane
from landscape.functions import hessian_plane, measure_points
from workers.errors import CurvatureError

PLAN = MeasurementPlan(batch_size=256, threads=1)
HERE = {"device_ids": [0], "progress": False}
DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.data[:400], dtype=torch.float32) / 16
LABELS = torch.tensor(DIGITS.target[:400])


def flat(direction, names=None):
    return np.concatenate([direction[name].reshape(-1) for name in names or direction])


def bowl_of(scales):
    """A loss whose Hessian is diagonal, with twice these numbers."""
    scales, start = torch.tensor(scales, dtype=torch.float64), np.linspace(0.5, 2, len(scales)).tolist()
    data = torch.zeros(6, 1, dtype=torch.float64), torch.ones(6, len(scales), dtype=torch.float64)

    def loss(outputs, wanted):
        return (scales * (outputs - wanted).square()).sum(1).mean()

    return Bowl(start), lambda: (loss, Bowl(start), data, {})


def test_the_plane_of_a_dry_run_is_neither_measured_nor_saved(tmp_path):
    """Any vectors stand in it for eigenvectors, whose identity it has."""
    plane = hessian_plane(*(case := bowl_of([1.0, 18.0])), dry_run=True, **HERE)
    assert evaluate(plane, case[1], size=3, dry_run=True, **HERE) is None
    for call in (
        lambda: evaluate(plane, case[1], size=3, output=tmp_path / "a.h5", **HERE),
        lambda: measure_points(plane, case[1], [[0.0, 0.0]], **HERE),
        lambda: plane.save(tmp_path / "plane.safetensors"),
    ):
        with pytest.raises(ValueError, match=r"^plane must be along eigenvectors that were searched"):
            call()
    assert list(tmp_path.iterdir()) == []


class TestKnownSpectra:
    def test_directions_are_eigenvectors_of_length_one_and_axes_end_where_the_loss_has_risen(self):
        plane = hessian_plane(*bowl_of([1.0, 18.0, 2.0, 0.5]), which=("top", "second"), rise=2.0, **HERE)
        assert plane.curvature.eigenvalues == pytest.approx((36.0, 4.0), rel=1e-9)
        np.testing.assert_allclose(np.abs(flat(plane.directions[0])), [0, 1, 0, 0], atol=1e-6)
        np.testing.assert_allclose(np.abs(flat(plane.directions[1])), [0, 0, 1, 0], atol=1e-6)
        np.testing.assert_allclose(plane.norms, 1)
        x, y = plane.axes(5)
        # Half an eigenvalue times the half-width squared is the rise.
        np.testing.assert_allclose([x[-1], y[-1]], [np.sqrt(4 / 36), np.sqrt(4 / 4)], rtol=1e-9)
        assert x[0] == -x[-1]
        assert x[2] == 0
        np.testing.assert_allclose(plane.axes(5, margin=0.5)[0], 2 * x)

    def test_both_vectors_of_a_double_eigenvalue_span_the_plane(self):
        plane = hessian_plane(*bowl_of([1.0, 3.0, 3.0, 0.5, 0.25, 2.0]), **HERE)
        assert plane.curvature.eigenvalues == pytest.approx((6.0, 6.0), rel=1e-9)
        vectors = np.stack([flat(direction) for direction in plane.directions])
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(2), atol=1e-9)
        np.testing.assert_allclose(vectors[:, [0, 3, 4, 5]], 0, atol=1e-6)

    def test_one_name_gives_a_line_and_the_bottom_is_the_lowest(self):
        line = hessian_plane(*bowl_of([1.0, -3.0, 2.0]), which="bottom", **HERE)
        assert line.dimension == 1
        assert line.curvature.eigenvalues == pytest.approx((-6.0,), rel=1e-9)
        assert line.axes(5)[1] is None

    def test_an_axis_along_which_nothing_bends_ends_at_the_length_of_the_weights(self):
        plane = hessian_plane(*bowl_of([5.0, 0.0, 0.0]), which=("top", "bottom"), **HERE)
        length = np.linalg.norm(np.linspace(0.5, 2, 3))
        assert plane.axes(3)[1][-1] == pytest.approx(length)
        assert [note for note in plane.notes if note.startswith("along y the loss hardly bends")]

    def test_a_network_against_the_exact_hessian(self):
        network = saddle()
        values, vectors = np.linalg.eigh(exact_hessian(network, LOSS, *samples()).numpy())
        plane = hessian_plane(network, callback_fn, which=("second", "bottom"), tolerance=1e-6, **HERE)
        np.testing.assert_allclose(plane.curvature.eigenvalues, values[[-2, 0]], rtol=1e-8)
        for direction, exact in zip(plane.directions, vectors.T[[-2, 0]], strict=True):
            assert abs(flat(direction) @ exact) == pytest.approx(1, abs=1e-8)

    def test_the_gauss_newton_matrix_is_another(self):
        plane = hessian_plane(saddle(), callback_fn, which="top", matrix="ggn", **HERE)
        assert plane.decomposition == "ggn"
        exact = exact_hessian(saddle(), LOSS, *samples()).numpy()
        assert abs(plane.curvature.eigenvalues[0] / np.linalg.eigvalsh(exact)[-1] - 1) > 1e-3

    @pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
    def test_a_loss_of_batches_keeps_them_also_where_the_callbacks_network_cannot_tell(self):
        def squared(outputs, targets):
            return LOSS(outputs, targets).square()

        def callback():
            start = saddle()
            with torch.no_grad():
                for parameter in start.parameters():
                    parameter.zero_()  # all samples have equal losses
            return squared, start, DataLoader(TensorDataset(*samples()), batch_size=20), {}

        plane = hessian_plane(saddle(), callback, which="top", tolerance=1e-6, **HERE)
        batches = [tuple(item.split(20)) for item in samples()]
        sizes = [len(batch) for batch in batches[0]]
        parts = [exact_hessian(saddle(), squared, *batch) * len(batch[0]) for batch in zip(*batches, strict=True)]
        exact = np.linalg.eigvalsh((sum(parts) / sum(sizes)).numpy())
        assert plane.curvature.eigenvalues[0] == pytest.approx(exact[-1], rel=1e-8)
        whole = np.linalg.eigvalsh(exact_hessian(saddle(), squared, *samples()).numpy())
        assert plane.curvature.eigenvalues[0] != pytest.approx(whole[-1], rel=1e-4)

    def test_the_bottom_of_the_gauss_newton_matrix_is_refused(self):
        with pytest.raises(ValueError, match=r'must not have "bottom" with matrix="ggn", whose lowest .* zero'):
            hessian_plane(saddle(), callback_fn, which=("top", "bottom"), matrix="ggn", **HERE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_what_random_planes_hide_the_lowest_eigenvector_shows():
    """Random planes average over all eigenvalues, so that a saddle looks like a minimum (Boettcher, Wheeler 2024)."""
    network = saddle()
    for seed in range(4):
        plane = random_plane(network, seed=seed, perturb_one_dimensional=True)
        measured = evaluate(plane, callback_fn, size=5, plan=PLAN, limits=(-0.5, 0.5), **HERE)
        assert measured.loss[2, 2] == measured.loss.min()
    plane = hessian_plane(network, callback_fn, which=("top", "bottom"), rise=0.01, **HERE)
    shown = evaluate(plane, callback_fn, size=5, plan=PLAN, **HERE)
    centre = shown.loss[2, 2]
    assert (shown.loss[2, [0, 1, 3, 4]] > centre).all()
    assert (shown.loss[[1, 3], 2] < centre).all()


def perceptron(activation):
    return nn.Sequential(nn.Linear(64, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, 10))


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 12, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


def trained(build):
    torch.manual_seed(0)
    network = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(IMAGES), LABELS).backward()
        optimizer.step()
    return network


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "within"),
    [(lambda: perceptron(nn.Tanh), 0.02), (lambda: perceptron(nn.GELU), 0.02), (convolutional, 0.05)],
    ids=["tanh", "gelu", "relu and pooling"],
)
def test_the_measured_surface_bends_as_the_eigenvalue_says(build, within):
    """It is measured without any derivative, at 1e-3 of the weights."""
    network = trained(build)

    def callback():
        return nn.CrossEntropyLoss(), copy.deepcopy(network), (IMAGES, LABELS), {}

    line = hessian_plane(network, callback, which="top", **HERE)
    step = 1e-3 * line.longest
    loss = evaluate(line, callback, x=[-step, 0.0, step], plan=PLAN, **HERE).loss
    assert (loss[0] - 2 * loss[1] + loss[2]) / step**2 == pytest.approx(line.curvature.eigenvalues[0], rel=within)


class TestErrors:
    def test_a_loss_that_is_no_number_at_these_weights(self):
        network, callback = bowl_of([1.0, 2.0])
        with torch.no_grad():
            network.weight[0] = 1e200
        with pytest.raises(CurvatureError, match=r"origin has no plane along eigenvectors: .*the loss is inf"):
            hessian_plane(network, callback, **HERE)

    @pytest.mark.slow
    def test_few_products_warn_and_say_how_exact_it_is(self):
        network, callback = bowl_of(np.linspace(1, 2, 40).tolist())
        with pytest.warns(UserWarning, match="top, second have not converged after .* residuals .* Raise max_products"):
            plane = hessian_plane(network, callback, max_products=4, **HERE)
        assert plane.curvature.residuals[1] > 1e-3 * plane.curvature.eigenvalues[1]


def test_a_saved_plane_is_the_same(tmp_path):
    plane = hessian_plane(saddle(), callback_fn, which=("top", "bottom"), name="saddle", **HERE)
    again = Plane.load(plane.save(tmp_path / "plane.safetensors"))
    assert again.curvature == plane.curvature
    assert again.identity == plane.identity
    names = list(plane.directions[1])
    np.testing.assert_array_equal(flat(again.directions[1], names), flat(plane.directions[1], names))
    assert "eigenvalues 2.452, -0.0771" in repr(again)


@pytest.mark.slow
def test_two_workers_share_the_samples_and_find_the_same():
    one = hessian_plane(saddle(), callback_fn, **HERE)
    two = hessian_plane(saddle(), callback_fn, device_ids=[0, 1], progress=False)
    assert two.identity == one.identity
    np.testing.assert_allclose(two.curvature.eigenvalues, one.curvature.eigenvalues, rtol=1e-9)
    for ours, theirs in zip(one.directions, two.directions, strict=True):
        assert flat(ours) @ flat(theirs) == pytest.approx(1, abs=1e-9)
