"""Losses that draw random numbers: the same ones at every point, on any worker, in any order."""

import contextlib
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import evaluator_of

from landscape import evaluate, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.facts import summary_text
from landscape.functions import refine
from workers import OwnLoss
from workers.errors import NondeterministicLossError, SampleMemoryError
from workers.evaluator import SampleMemory
from workers.measurement_plan import MeasurementPlan, Workload
from workers.torch.settings import RandomNumbers

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions")

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(70, 16, generator=GENERATOR)


class VariationalAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, images):
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        hidden = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(hidden), mean, log_variance


def evidence_step(network, batch):
    (images,) = batch
    decoded, mean, log_variance = network(images)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    return functional.mse_loss(decoded, images, reduction="sum") / len(images) + divergence, decoded


def autoencoder():
    torch.manual_seed(1)
    return VariationalAutoencoder()


def vae(batch_size=32):
    return OwnLoss(evidence_step), autoencoder(), DataLoader(TensorDataset(IMAGES), batch_size=batch_size), {}


class ManySources(nn.Module):
    """Dropout that stays on, and noise from NumPy and from Python."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, images):
        noise = random.random() + float(np.random.normal())  # noqa: NPY002
        return functional.dropout(self.layer(images), 0.5, training=True) + noise


def many_sources():
    torch.manual_seed(1)
    return nn.CrossEntropyLoss(), ManySources(), (IMAGES, (IMAGES.sum(1) * 7).long() % 3), {}


ALIKE = {"seed_each_point": True, "progress": False, "size": 4}


def measured(callback_fn, **options):
    return evaluate(random_plane(callback_fn()[1]), callback_fn, **ALIKE | options)


def seeded_evaluator(result, **how):
    return evaluator_of(*result, seed_each_point=True, **how)


def vectors(plane):
    return plane.origin, plane.directions, plane.buffers


def test_without_it_the_error_says_what_helps():
    with pytest.raises(NondeterministicLossError, match="seed_each_point=True lets it draw the same numbers"):
        measured(vae, seed_each_point=False)


@pytest.mark.parametrize("callback_fn", [vae, many_sources])
def test_equal_weights_have_equal_losses_and_others_do_not(callback_fn):
    first, again = (measured(callback_fn) for _ in range(2))
    np.testing.assert_array_equal(first.loss, again.loss)
    assert (first.loss != measured(callback_fn, seed=1).loss).all(), "another seed draws other numbers"
    if callback_fn is many_sources:  # whose loss is PyTorch's
        assert np.isfinite(first.metrics["loss_stderr"]).all()
    assert first.attributes["seed_each_point"] is True
    assert first.attributes["identity"]["seed_each_point"] == 0
    assert first.attributes["partition_dependent"], "draws belong to batches"
    assert "which also seeds the loss's random numbers" in summary_text(first)
    assert any("the same random numbers are drawn at every point" in note for note in first.attributes["notes"])


def test_the_draws_are_those_of_a_loop_of_ones_own():
    """An oracle that knows nothing of evaluators: seeds, one forward pass for each batch, a mean over samples."""
    plane = random_plane(autoencoder(), seed=3)
    found = evaluate(plane, vae, x=[-0.5, 0.5], y=[0.25, 1.0], seed=5, **{**ALIKE, "size": 3})
    network = autoencoder()
    network.load_state_dict({name: torch.from_numpy(array) for name, array in plane.point([0.5, 1.0]).items()})
    total = 0.0
    for number, images in enumerate(IMAGES.split(32)):
        torch.manual_seed(int(np.random.SeedSequence([0x5EED, 5, number]).generate_state(1)[0]))
        with torch.no_grad():
            total += evidence_step(network, (images,))[0].item() * len(images)
    assert found.loss[1, 1] == pytest.approx(total / len(IMAGES), rel=1e-6)


def test_points_in_any_order_and_chunks_of_any_size_agree_on_any_worker():
    plane = random_plane(autoencoder(), seed=3)
    points = np.random.default_rng(0).normal(size=(7, 2))
    evaluators = [seeded_evaluator(vae(), memory=SampleMemory(shared=True))]
    memory = SampleMemory((evaluators[0].description.held,), shared=True)
    evaluators.append(seeded_evaluator(vae(), plan=evaluators[0].description.plan, memory=memory))
    for evaluator in evaluators:
        evaluator.load(*vectors(plane))
    whole = evaluators[0].measure(points)["loss"]
    single = np.concatenate([evaluators[1].measure(point[None])["loss"] for point in points[::-1]])[::-1]
    np.testing.assert_array_equal(whole, single)
    state = evaluators[0].measure_state({name: plane.origin[name] for name in plane.origin}, {})
    assert state["loss"] == evaluators[1].measure(np.zeros((1, 2)))["loss"][0], "a checkpoint draws the same numbers"


def test_the_generators_of_the_process_stay_where_they_were():
    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    evaluator = seeded_evaluator(many_sources())
    evaluator.load(*vectors(random_plane(many_sources()[1])))
    # Only then: the tests' checks of annotations draw from Python's generator as well.
    same = RandomNumbers(0, [torch.device("cpu")])
    before = states()
    with same.kept(contextlib.nullcontext()):
        same.numbered(many_sources()[1])(IMAGES)
        assert all(one != other for one, other in zip(before, states(), strict=True))
    assert states() == before
    evaluator.measure(np.zeros((2, 2)))
    assert states()[:2] == before[:2]


def test_batches_are_kept_and_nothing_is_compiled():
    with pytest.warns(UserWarning, match="compiled code draws other random numbers"):
        description = seeded_evaluator(vae(20), workload=Workload(True, points=10_000)).description
    assert description.plan.batch_size is None
    assert not description.plan.compile
    assert any("each of the 4 batches of at most 20 samples" in note for note in description.notes)
    tensors = seeded_evaluator(many_sources()).description
    assert any("each of the 1 batches of at most 70 samples" in note for note in tensors.notes)


def test_a_generator_of_ones_own_is_still_found():
    own = torch.Generator().manual_seed(0)

    def step(network, batch):
        return (network(batch[0])[1] * torch.rand((), generator=own)).mean()

    def callback_fn():
        return OwnLoss(step), autoencoder(), DataLoader(TensorDataset(IMAGES), batch_size=35), {}

    with pytest.raises(NondeterministicLossError, match="unless it draws them from a generator of its own"):
        measured(callback_fn)


def test_a_file_is_continued_only_with_the_same_draws(tmp_path):
    path = tmp_path / "landscape.h5"
    measured(many_sources, output=path)
    assert measured(many_sources, output=path).report.resumed > 1
    with pytest.raises(LandscapeIdentityError, match="seed_each_point: the file has 0, this run 1"):
        measured(many_sources, output=path, seed=1)


def test_samples_that_do_not_fit_are_an_error():
    with pytest.raises(SampleMemoryError, match="under seed_each_point=True each point draws its numbers in one pass"):
        seeded_evaluator(vae(), memory=SampleMemory(limit=100))


def test_an_evaluator_of_ones_own_is_not_reached():
    from workers import FunctionEvaluator

    own = FunctionEvaluator(lambda weights: float(weights["w"].sum()), {"w": np.zeros(3)})
    plane = random_plane({"w": np.ones(3)}, network=own.description.space, perturb_one_dimensional=True)
    with pytest.raises(ValueError, match="seed_each_point=True does not reach the Evaluator"):
        evaluate(plane, lambda: own, **ALIKE)


def test_each_of_several_data_sets_draws_as_if_it_were_alone():
    inputs = {"train": IMAGES[:40], "test": IMAGES[40:]}

    def callback_fn(names=("train", "test")):
        loaders = {name: DataLoader(TensorDataset(inputs[name]), batch_size=16) for name in names}
        return OwnLoss(evidence_step), autoencoder(), loaders, {}

    plane = random_plane(autoencoder(), seed=3)
    both = evaluate(plane, callback_fn, plan=MeasurementPlan(), **ALIKE)
    for name, metric in (("train", "loss"), ("test", "loss@test")):
        alone = evaluate(plane, lambda name=name: callback_fn((name,)), plan=MeasurementPlan(), **ALIKE)
        np.testing.assert_array_equal(both.metrics[metric], alone.loss)


def test_a_refined_landscape_draws_the_same_numbers(tmp_path):
    plane = random_plane(autoencoder(), seed=3)
    coarse = evaluate(plane, vae, output=tmp_path / "landscape.h5", **{**ALIKE, "size": 3})
    fine = refine(coarse.path, vae, plane=plane, size=5, progress=False)
    whole = evaluate(plane, vae, plan=MeasurementPlan(), **{**ALIKE, "size": 5})
    np.testing.assert_allclose(fine.loss, whole.loss, rtol=1e-6)
