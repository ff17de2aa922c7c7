"""Losses as sums over samples: batch size changes nothing, and torch's own value is what comes out."""

import copy
import functools

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import at_point, classes, evaluator_of, features, labelled, mlp, plane_of, values_at

from workers.errors import CallbackFunctionError, SamplesError

COUNT = 50
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5])
POINT = (0.2, -0.3)


def probabilities(count=COUNT, seed=6):
    return features(count, 4, seed).softmax(1)


def with_ignored(targets):
    targets = targets.clone()
    targets[::3] = -100
    return targets


class UserMean(nn.Module):
    """A criterion of the user's own that follows torch's convention."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, outputs, targets):
        losses = (outputs - targets).abs().sum(1)
        return losses.mean() if self.reduction == "mean" else losses


def mean_error(outputs, targets):
    return (outputs - targets).square().mean()


class MeanError(nn.Module):
    """A module without a reduction."""

    def forward(self, outputs, targets):
        return mean_error(outputs, targets)


class ReducedAlready(MeanError):
    """``reduction`` is there, but turning it off changes nothing."""

    reduction = "mean"


SPLIT = {
    "cross entropy": (nn.CrossEntropyLoss(), classes()),
    "class weights": (nn.CrossEntropyLoss(weight=WEIGHTS), classes()),
    "ignored": (nn.CrossEntropyLoss(), with_ignored(classes())),
    "other ignore_index": (nn.CrossEntropyLoss(ignore_index=2), classes()),
    "weights and ignored": (nn.CrossEntropyLoss(weight=WEIGHTS), with_ignored(classes())),
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.2), classes()),
    "weights and label smoothing": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2), classes()),
    "everything": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2), with_ignored(classes())),
    "probabilities": (nn.CrossEntropyLoss(), probabilities()),
    "weighted probabilities": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1), probabilities()),
    "negative log likelihood": (nn.NLLLoss(weight=WEIGHTS), classes()),
    "binary": (nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), (probabilities() > 0.3).float()),
    "binary, one weight for each class": (nn.BCEWithLogitsLoss(weight=WEIGHTS), (probabilities() > 0.3).float()),
    "mean squared error": (nn.MSELoss(), probabilities()),
    "absolute error": (nn.L1Loss(), probabilities()),
    "huber": (nn.SmoothL1Loss(beta=0.3), probabilities()),
    "poisson": (nn.PoissonNLLLoss(), probabilities()),
    "multi margin": (nn.MultiMarginLoss(weight=WEIGHTS), classes()),
    "divergence, batchmean": (nn.KLDivLoss(reduction="batchmean"), probabilities()),
    "divergence, sum": (nn.KLDivLoss(reduction="sum"), probabilities()),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), classes()),
    "weighted sum": (nn.CrossEntropyLoss(weight=WEIGHTS, reduction="sum"), with_ignored(classes())),
    "function": (functional.cross_entropy, with_ignored(classes())),
    "partial": (functools.partial(functional.cross_entropy, label_smoothing=0.1, weight=WEIGHTS), classes()),
    "partial, sum": (functools.partial(functional.mse_loss, reduction="sum"), probabilities()),
    "user's class": (UserMean(), probabilities()),
    "none, which is the mean": (nn.CrossEntropyLoss(reduction="none"), classes()),
}


def own_value(loss, targets, order=slice(None)):
    """torch's own value over the whole data set in float64."""
    with torch.no_grad():
        outputs = at_point(mlp().double(), plane_of(mlp()), POINT)(features(COUNT).double())[order]
    targets = (targets.double() if targets.is_floating_point() else targets)[order]
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss).double()
    elif isinstance(loss, functools.partial):
        keywords = {key: item.double() if torch.is_tensor(item) else item for key, item in loss.keywords.items()}
        loss = functools.partial(loss.func, **keywords)
    return loss(outputs, targets).mean().item()


def measured(loss, dataset, batch_size=None, network=None, **choices):
    network = network or mlp()
    return values_at(evaluator_of(loss, network, dataset, batch_size=batch_size, **choices), network, POINT)


@pytest.mark.parametrize("name", SPLIT)
def test_batch_size_changes_nothing(name):
    loss, targets = SPLIT[name]
    loader = DataLoader(TensorDataset(features(), targets), batch_size=9, shuffle=True)
    expected = own_value(loss, targets)
    standard_errors = []
    for batch_size in (1, 7, 64, None):
        values, description = measured(loss, loader, batch_size)
        np.testing.assert_allclose(values["loss"], expected, rtol=1e-5, atol=1e-7)
        assert not description.partition_dependent
        assert description.notes == ()
        standard_errors.append(values["loss_stderr"])
    np.testing.assert_allclose(standard_errors, standard_errors[0], rtol=1e-4)


@pytest.mark.parametrize("name", ["cross entropy", "mean squared error", "divergence, batchmean", "partial, sum"])
def test_standard_error_is_that_of_samples(name):
    loss, targets = SPLIT[name]
    each = np.array([own_value(loss, targets, order=slice(index, index + 1)) for index in range(COUNT)])
    scale = COUNT if "sum" in name else 1
    expected = scale * each.std(ddof=1) / np.sqrt(COUNT)
    values, _ = measured(loss, TensorDataset(features(), targets), 7)
    np.testing.assert_allclose(values["loss_stderr"], expected, rtol=1e-4)


def test_standard_error_of_a_weighted_mean():
    targets = with_ignored(classes())
    value, _ = measured(nn.CrossEntropyLoss(weight=WEIGHTS), TensorDataset(features(), targets))
    with torch.no_grad():
        outputs = at_point(mlp().double(), plane_of(mlp()), POINT)(features().double())
    losses = functional.cross_entropy(outputs, targets, weight=WEIGHTS.double(), reduction="none").numpy()
    weights = np.where(targets != -100, WEIGHTS.double()[targets.clamp(min=0)], 0.0)
    # By linearization (Cochran 1977, ch. 6), and by the jackknife, which equals it for large samples.
    mean = losses.sum() / weights.sum()
    linear = np.sqrt(COUNT / (COUNT - 1) * np.square(losses - mean * weights).sum()) / weights.sum()
    ratios = (losses.sum() - losses) / (weights.sum() - weights)
    jackknife = np.sqrt((COUNT - 1) / COUNT * np.square(ratios - ratios.mean()).sum())
    np.testing.assert_allclose(value["loss"], mean, rtol=1e-5)
    np.testing.assert_allclose(value["loss_stderr"], linear, rtol=1e-5)
    np.testing.assert_allclose(value["loss_stderr"], jackknife, rtol=0.1)


def test_one_sample_has_no_standard_error():
    values, _ = measured(nn.CrossEntropyLoss(), (features(1), classes(1)))
    assert np.isfinite(values["loss"])
    assert np.isnan(values["loss_stderr"])


def test_a_batch_of_padding_only_does_no_harm():
    targets = classes()
    targets[10:30] = -100
    for loss in (nn.CrossEntropyLoss(), functional.cross_entropy):
        for batch_size in (None, 5):
            loader = DataLoader(TensorDataset(features(), targets), batch_size=10)
            values, description = measured(loss, loader, batch_size)
            np.testing.assert_allclose(values["loss"], own_value(loss, targets), rtol=1e-5)
            assert not description.partition_dependent


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=torch.tensor([0.0, 1, 1, 1]))])
def test_targets_that_all_count_nothing_are_refused(loss):
    targets = torch.full((COUNT,), -100 if loss.weight is None else 0)
    with pytest.raises(SamplesError, match=r"at least one target that counts, but every target is ignored"):
        measured(loss, (features(), targets))


def test_flattened_outputs_have_no_standard_error():
    """Outputs that the network flattens over samples no longer tell which element belongs to which sample."""
    network = nn.Sequential(mlp(), nn.Flatten(0))

    class Flat(nn.Module):
        reduction = "mean"

        def forward(self, outputs, targets):
            return functional.mse_loss(outputs, targets.flatten(), reduction=self.reduction)

    targets = probabilities()
    for batch_size in (1, 7, None):
        values, description = measured(Flat(), TensorDataset(features(), targets), batch_size, network)
        assert description.metrics == ("loss",)
        assert not description.partition_dependent
        np.testing.assert_allclose(values["loss"], own_value(nn.MSELoss(), targets), rtol=1e-5)


@pytest.mark.parametrize("loss", [mean_error, MeanError(), ReducedAlready()])
def test_a_mean_of_means_is_the_mean_whatever_we_know_of_its_reduction(loss):
    targets = probabilities()
    for batch_size in (1, 7, 64, None):
        values, description = measured(loss, DataLoader(TensorDataset(features(), targets), 9), batch_size)
        np.testing.assert_allclose(values["loss"], own_value(loss, targets), rtol=1e-5)
        assert not description.partition_dependent
        assert description.metrics == ("loss",)


def contrastive(outputs, targets):
    """Each sample against all others of its batch."""
    return functional.cross_entropy(outputs @ targets.T, torch.arange(len(outputs)))


class StrangeReduction(nn.Module):
    """``reduction`` means another thing here."""

    def __init__(self):
        super().__init__()
        self.reduction = "sum"

    def forward(self, outputs, targets):
        if self.reduction == "none":
            return torch.zeros(len(outputs))
        return (outputs - targets).square().sum() / len(outputs) ** 2


def token_mean(outputs, targets):
    return functional.cross_entropy(outputs, targets, ignore_index=-100)


BOUND = {
    "contrastive": (contrastive, probabilities()),
    "strange reduction": (StrangeReduction(), probabilities()),
    "sum in a lambda": (lambda outputs, targets: (outputs - targets).square().sum(), probabilities()),
}


@pytest.mark.parametrize("own", [1, 9, COUNT])
def test_a_mean_over_labels_in_a_lambda_is_one_over_all_samples(own):
    targets = with_ignored(classes())
    loader = DataLoader(TensorDataset(features(), targets), batch_size=own)
    values, description = measured(lambda outputs, targets: token_mean(outputs, targets), loader, 7)
    assert not description.partition_dependent
    np.testing.assert_allclose(values["loss"], own_value(token_mean, targets), rtol=1e-5)


@pytest.mark.parametrize("name", BOUND)
@pytest.mark.parametrize("own", [1, 9, COUNT])
def test_a_loss_of_batches_keeps_the_loaders_own(name, own):
    loss, targets = BOUND[name]
    loader = DataLoader(TensorDataset(features(), targets), batch_size=own)
    with pytest.warns(UserWarning, match="loss depends on how samples are batched, so the data set's own batches"):
        values, description = measured(loss, loader, 7)
    assert description.partition_dependent
    assert description.plan.batch_size is None
    assert description.metrics == ("loss",)
    (note,) = description.notes
    assert "no standard error" in note
    parts = [slice(start, start + own) for start in range(0, COUNT, own)]
    sizes = [len(range(*part.indices(COUNT))) for part in parts]
    expected = np.average([own_value(loss, targets, order=part) for part in parts], weights=sizes)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)


def test_own_batches_are_part_of_the_samples_identity_where_they_matter():
    def identities(loss, targets):
        loaders = [DataLoader(TensorDataset(features(), targets), batch_size=own) for own in (5, 9)]
        return [evaluator_of(loss, mlp(), loader).description.samples_sha256 for loader in loaders]

    free = identities(nn.MSELoss(), probabilities())
    assert free[0] == free[1]
    with pytest.warns(UserWarning, match="depends on how samples are batched"):
        bound = identities(contrastive, probabilities())
    assert bound[0] != bound[1]
    assert not set(free) & set(bound)


def test_a_loss_that_needs_full_batches():
    def picky(outputs, targets):
        assert len(outputs) % 10 == 0
        return (outputs - targets).square().mean()

    with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
        values, description = measured(picky, DataLoader(TensorDataset(features(), probabilities()), 10))
    assert description.partition_dependent
    np.testing.assert_allclose(values["loss"], own_value(mean_error, probabilities()), rtol=1e-5)


def test_nan_leaves_the_question_open():
    """With NaN everywhere the two partitions look equal, which shows nothing."""
    network = mlp()
    plane = plane_of(network)
    with torch.no_grad():
        network[0].weight.fill_(torch.nan)
    loader = DataLoader(TensorDataset(features(), probabilities()), 9)
    evaluator = evaluator_of(contrastive, network, loader, batch_size=7)  # no warning yet
    assert evaluator.description.partition_dependent
    assert evaluator.description.notes == ()
    with pytest.warns(
        UserWarning, match="loss is not finite at the plane's origin, its corners and between them, which leaves"
    ):
        evaluator.load(*plane_of(network), far_points=[(1.0, 1.0)])
    with pytest.warns(UserWarning, match="loss depends on how samples are batched, so the data set's own batches are"):
        evaluator.load(*plane, far_points=[(1.0, 1.0)])
    assert len(evaluator.description.notes) == 1
    # The mean of means of this loss is the mean, which shows as soon as it can be measured.
    evaluator = evaluator_of(mean_error, network, loader, batch_size=7)
    evaluator.load(*plane, far_points=[(1.0, 1.0)])
    assert not evaluator.description.partition_dependent
    assert evaluator.description.plan.batch_size == 7
    evaluator = evaluator_of(nn.MSELoss(), network, loader)
    assert not evaluator.description.partition_dependent
    value = measure_plane(evaluator, plane, np.array([POINT]))["loss"][0]
    np.testing.assert_allclose(value, own_value(nn.MSELoss(), probabilities()), rtol=1e-5)


@pytest.mark.parametrize("extreme", [torch.inf, -torch.inf, torch.nan])
def test_infinite_losses_stay(extreme):
    targets = probabilities()
    targets[3, 1] = extreme
    values, _ = measured(nn.L1Loss(), (features(), targets), 7)
    np.testing.assert_equal(values["loss"], own_value(nn.L1Loss(), targets))
    assert not np.isfinite(values["loss_stderr"])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(torch.ones(50, 4), r"a tensor of shape \(50, 4\)"), ({"loss": 1.0}, "a dict"), (None, "a NoneType")],
)
def test_a_loss_that_is_no_number_is_refused(value, shown):
    with pytest.raises(CallbackFunctionError, match=f"the loss must be a single number for a batch, but is {shown}"):
        measured(lambda outputs, targets: value, labelled())


def test_losses_in_plain_numbers_are_taken():
    for convert in (float, np.float32, lambda value: value.reshape(1)):
        values, _ = measured(
            lambda outputs, targets, convert=convert: convert((outputs - targets).square().mean()),
            (features(), probabilities()),
        )
        np.testing.assert_allclose(values["loss"], own_value(mean_error, probabilities()), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_class_weights_of_targets_that_are_bytes(dtype):
    """PyTorch takes an index of bytes for a mask."""
    targets = classes().clone()
    targets[:3] = 255
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.2, 1.5])[: int(classes().max()) + 1], ignore_index=255)
    network = mlp()
    evaluator = evaluator_of(loss, network, DataLoader(TensorDataset(features(), targets.to(dtype)), batch_size=9))
    assert not evaluator.description.partition_dependent
    assert values_at(evaluator, network, POINT)[0]["loss"] == pytest.approx(own_value(loss, targets), rel=1e-6)


def test_no_class_of_bytes_is_taken_for_the_ignored_one():
    """Among bytes -100, by which PyTorch ignores a target, is 156; the few batches that are looked at have none."""
    targets = torch.full((400,), 20, dtype=torch.uint8)
    targets[256:300] = 156
    network, inputs = mlp(outputs=157), features(400)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, TensorDataset(inputs, targets), batch_size=128)
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(network(inputs), targets))
    assert values_at(evaluator, network, (0.0, 0.0))[0]["loss"] == pytest.approx(expected, rel=1e-6)
