"""What every evaluator promises, whatever the framework (contract 2)."""

import copy
import warnings

import numpy as np
import pytest
from cases import all_cases, another, open_evaluator, own_plane
from measured_planes import measure_plane

from collectors.networks.readers import framework_of, read_network
from collectors.networks.weight_space import direction_dtype, move_along
from landscape import MeasurementPlan
from landscape.functions import compare
from workers.errors import CallbackFunctionError, FrozenNetworkError, SamplesError
from workers.evaluator import OriginMeasurement
from workers.measuring.checks import check_determinism
from workers.measuring.sample_loss import mean_and_stderr
from workers.metric_names import SAMPLE_LOSSES
from workers.pool import OriginValues
from workers.pools.in_process import Worker

CASES = all_cases("EVALUATOR_CASES")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def opened(case):
    """An evaluator that tests share which only measure: making one compiles the network and looks at the data."""
    built = case.build()
    evaluator = open_evaluator(built)
    yield evaluator, own_plane(built, evaluator)
    evaluator.close()


def load(built, **options):
    """Returns an evaluator with a plane of ``own_plane`` loaded, and the plane."""
    evaluator = open_evaluator(built, **options)
    plane = own_plane(built, evaluator)
    evaluator.load(*plane)
    return evaluator, plane


@pytest.fixture
def loaded(opened):
    evaluator, plane = opened
    evaluator.load(*plane)
    return opened


@pytest.fixture(scope="module")
def of_some(case):
    evaluator = open_evaluator(case.build(), num_samples=24)
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def interpolating(case):
    """An evaluator that interpolates buffers, which tests share, and a plane for it."""
    evaluator, plane = load(case.build(), buffers="interpolate")
    yield evaluator, plane
    evaluator.close()


@pytest.mark.parametrize("name", ["status", "norm", "x", "a/b", "", ".", "a\n", "loss", "projected_loss"])
def test_a_name_that_the_file_cannot_hold_is_refused_before_anything_is_read(case, name):
    model, network, _, _ = case.build()
    with pytest.raises(CallbackFunctionError, match=r"the name of a metric must .* Rename the metric"):
        open_evaluator((model, network, object(), {name: lambda outputs, targets: 0.0}))


def test_the_origin_is_the_frameworks_own_loss(case, loaded):
    evaluator, _ = loaded
    measured = evaluator.measure(np.zeros((1, 2)))
    assert measured["loss"][0] == pytest.approx(case.own_loss(case.build()), rel=case.closes)
    assert evaluator.description.metrics[0] == "loss"
    assert set(measured) == set(evaluator.description.metrics)


def test_a_point_is_the_network_at_these_weights(loaded):
    evaluator, (origin, directions, buffers) = loaded
    point = evaluator.measure(np.array([[0.4, -0.7]]))
    moved = dict(origin)
    for info in evaluator.description.space.trainable:
        value = origin[info.name].astype(direction_dtype(info.dtype))
        shifted = value + 0.4 * directions[0][info.name] - 0.7 * directions[1][info.name]
        moved[info.name] = shifted.astype(origin[info.name].dtype)
    state = evaluator.measure_state(moved, buffers)
    assert state["loss"] == pytest.approx(point["loss"][0], rel=1e-4)
    others = {name: array + np.float32(0.5) if array.dtype.kind == "f" else array for name, array in buffers.items()}
    own = evaluator.measure_state(moved, others)["loss"]
    assert (own == pytest.approx(state["loss"], rel=1e-4)) == all(others[name] is buffers[name] for name in buffers)
    assert evaluator.measure_state(moved, None)["loss"] == pytest.approx(state["loss"], rel=1e-6)  # the plane's buffers
    assert state["loss"] != pytest.approx(evaluator.measure(np.zeros((1, 2)))["loss"][0], rel=1e-4)
    np.testing.assert_array_equal(evaluator.measure(np.array([[0.4, -0.7]]))["loss"], point["loss"])  # still loaded
    assert {values.shape for values in evaluator.measure(np.empty((0, 2))).values()} == {(0,)}


def test_smaller_batches_give_the_same_values(case):
    """Where memory runs out, the pool asks for them in the middle of a survey."""
    evaluator, _ = load(case.build())
    points = np.array([[0.4, -0.7], [1.0, 1.0]])
    before = evaluator.measure(points)
    if evaluator.description.plan.batch_size is not None:
        evaluator.use_batch_size(5)
        assert evaluator.description.plan.batch_size == 5
    after = evaluator.measure(points)
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, rtol=100 * case.closes, atol=1e-6, err_msg=name)
    evaluator.close()


def test_the_network_ends_as_it_was_found(case):
    built = case.build()
    before = read_network(built[1])
    look = case.restored or (lambda network: None)
    seen = copy.deepcopy(look(built[1]))
    evaluator, _ = load(built)
    evaluator.measure(np.array([[0.4, -0.7], [1.0, 1.0]]))
    evaluator.close()
    after = read_network(built[1])
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert after[name].dtype == value.dtype
        assert after[name].tobytes() == value.tobytes(), name
    np.testing.assert_equal(look(built[1]), seen)


def test_frozen_parameters_stay_in_place(case):
    if case.freeze is None:
        pytest.skip(f"{case.name} has no frozen parameters")
    built = case.build()
    name = case.freeze(built[1])
    evaluator, plane = load(built)
    space = evaluator.description.space
    assert name in {info.name for info in space.parameters}
    assert name not in {info.name for info in space.trainable}
    evaluator.measure(np.ones((1, 2)))
    evaluator.close()
    np.testing.assert_array_equal(read_network(built[1])[name], plane[0][name])


def test_nothing_trainable_is_an_error(case):
    if case.freeze_all is None:
        pytest.skip(f"{case.name} cannot freeze everything")
    built = case.build()
    case.freeze_all(built[1])
    with pytest.raises(FrozenNetworkError, match="no trainable parameter"):
        open_evaluator(built)


def test_batch_size_changes_nothing(case, loaded):
    points = np.array([[0.0, 0.0], [0.5, -0.5], [-1.0, 0.25]])
    rows = [loaded[0].measure(points)]
    for batch_size in (7, 1000):
        evaluator, _ = load(case.build(), batch_size=batch_size)
        rows.append(evaluator.measure(points))
        evaluator.close()
    assert not evaluator.description.partition_dependent
    for row in rows[1:]:
        for name, values in rows[0].items():
            np.testing.assert_allclose(row[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


def test_one_point_or_many_are_the_same(loaded):
    evaluator, _ = loaded
    points = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    together = evaluator.measure(points)
    one_by_one = [evaluator.measure(points[index : index + 1]) for index in (4, 0, 2, 1, 3)]
    for name, values in together.items():
        alone = np.array([row[name][0] for row in one_by_one])
        np.testing.assert_allclose(alone, values[[4, 0, 2, 1, 3]], rtol=1e-5, atol=1e-7, err_msg=name)


def test_two_measurements_of_the_origin_agree(case, loaded):
    evaluator, _ = loaded
    both = evaluator.measure(np.zeros((2, 2)))
    pair = [{name: float(values[index]) for name, values in both.items()} for index in (0, 1)]
    check_determinism([OriginValues(case.name, "cpu", OriginMeasurement((pair[0], pair[1])))])


def test_nan_stays_nan(loaded):
    evaluator, (origin, directions, buffers) = loaded
    info = evaluator.description.space.trainable[0]
    poisoned = {**directions[0], info.name: np.full_like(directions[0][info.name], np.nan)}
    evaluator.load(origin, [poisoned, directions[1]], buffers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, inside a user's plain NumPy network
        values = evaluator.measure(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert np.isnan(values["loss"][0])


def test_fewer_samples(of_some, loaded):
    whole, plane = loaded
    of_some.load(*plane)
    some = of_some.measure(np.zeros((1, 2)))["loss"][0]
    assert of_some.description.num_samples == 24
    assert whole.description.num_samples >= 40
    assert whole.description.samples_sha256 != of_some.description.samples_sha256
    assert whole.measure(np.zeros((1, 2)))["loss"][0] != some


def test_a_lower_precision_or_a_clear_refusal(case):
    built = case.build()
    if framework_of(built[1]) not in ("torch", "keras"):
        with pytest.raises(ValueError, match=r'precision="bfloat16" is not available for .*Use precision="f'):
            open_evaluator(built, precision="bfloat16")
        return
    evaluator = open_evaluator(built, precision="bfloat16")
    measured = measure_plane(evaluator, own_plane(built, evaluator), np.zeros((1, 2)))["loss"][0]
    assert evaluator.description.plan.precision == "bfloat16"
    assert 0 < abs(measured / case.own_loss(case.build()) - 1) < 0.02


def test_recalibrated_buffers_or_a_clear_refusal(case):
    built = case.build()
    if case.recalibrate == "refused":
        with pytest.raises(ValueError, match='buffers="recalibrate" is not available'):
            open_evaluator(built, buffers="recalibrate")
        return
    if case.recalibrate == "nothing":
        with pytest.warns(UserWarning, match="changes nothing: the network has no normalization statistics"):
            open_evaluator(built, buffers="recalibrate").close()
        return
    evaluator, _ = load(built, buffers="recalibrate")
    first = evaluator.measure(np.array([[0.3, 0.3]]))
    assert np.isfinite(first["loss"][0])
    again = evaluator.measure(np.array([[-1.0, 0.5], [0.3, 0.3]]))
    np.testing.assert_allclose(again["loss"][1], first["loss"][0], rtol=1e-5)
    evaluator.close()


def test_interpolated_buffers_are_each_networks_own_at_its_corner(case, interpolating):
    evaluator, (origin, directions, buffers) = interpolating
    space = evaluator.description.space
    floating = [info.name for info in space.buffers if info.dtype.startswith("float")]
    ends = [{name: (scale * buffers[name] + shift) for name in floating} for scale, shift in ((3.0, 0.2), (0.1, 0.5))]
    ends = [{name: array.astype(buffers[name].dtype) for name, array in end.items()} for end in ends]
    corners = [buffers, *({**buffers, **end} for end in ends)]
    evaluator.load(origin, directions, buffers, ends)
    points = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.2, 0.3), (-1.0, 2.0), (2.0, 1.0)]
    shares = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.2, 0.3), (0, 0, 1), (0, 2 / 3, 1 / 3)]
    found = evaluator.measure(np.array(points))["loss"]
    expected = []
    for point, share in zip(points, shares, strict=True):
        mixed = dict(buffers)
        for name in floating:
            mixed[name] = sum(
                part * corner[name].astype(np.float64) for part, corner in zip(share, corners, strict=True)
            )
            mixed[name] = np.asarray(mixed[name], buffers[name].dtype)
        moved = {**origin, **move_along(space, origin, directions, point)}
        expected.append(evaluator.measure_state(moved, mixed)["loss"])
    np.testing.assert_allclose(found, expected, rtol=case.closes)
    np.testing.assert_allclose(found[:3], expected[:3], rtol=1e-6)
    # The next plane forgets them.
    evaluator.load(origin, directions, buffers)
    fixed = evaluator.measure(np.array(points[1:2]))["loss"][0]
    moved = {**origin, **move_along(space, origin, directions, points[1])}
    assert fixed == pytest.approx(evaluator.measure_state(moved, buffers)["loss"], rel=case.closes)
    assert (abs(fixed / found[1] - 1) > 1e-4) == bool(floating)


def test_masks_are_each_networks_own_at_its_corner_and_the_firsts_elsewhere(case, interpolating):
    evaluator, (origin, directions, buffers) = interpolating
    space, rng = evaluator.description.space, np.random.default_rng(0)
    floating = [info.name for info in space.buffers if info.dtype.startswith("float")]
    masks = [
        {name: np.asarray(rng.random(buffers[name].shape) > 0.5, buffers[name].dtype) for name in floating}
        for _ in range(3)
    ]
    buffers = {**buffers, **masks[0]}
    evaluator.load(origin, directions, buffers, masks[1:])
    points, owners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.2, 0.3), (2.0, 0.0)], (0, 1, 2, 0, 0)
    found = evaluator.measure(np.array(points))["loss"]
    expected = [
        evaluator.measure_state(
            {**origin, **move_along(space, origin, directions, point)}, {**buffers, **masks[owner]}
        )["loss"]
        for point, owner in zip(points, owners, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=case.closes)


def test_wrong_points_are_named(case):
    built = case.build()
    evaluator = open_evaluator(built)
    state = read_network(built[1])
    for measure in (lambda: evaluator.measure(np.zeros((1, 2))), lambda: evaluator.measure_state(state, state)):
        with pytest.raises(RuntimeError, match="no plane is loaded"):
            measure()
    evaluator.load(*own_plane(built, evaluator))
    with pytest.raises(ValueError, match=r"points must have shape \(points, 2\)"):
        evaluator.measure(np.zeros((1, 3)))
    evaluator.close()


def test_several_data_sets_are_each_what_they_are_alone(case, opened, of_some):
    """Bit for bit under one plan; the loss, its standard error and every metric."""
    model, network, dataset, metrics = built = case.build()
    sets, alone = {"train": dataset, "test": case.build()[2]}, {"train": of_some, "test": opened[0]}
    together = open_evaluator((model, network, sets, metrics), num_samples={"train": 24})
    plane = own_plane(built, together)
    points = np.random.default_rng(3).normal(size=(9, 2))

    def measured(evaluator):
        evaluator.load(*plane, far_points=[(1.0, 1.0)])
        found = evaluator.measure(points), evaluator.measure_state(plane[0], plane[2])
        return evaluator.description, *found

    description, values, state = measured(together)
    together.close()
    assert [item.name for item in description.datasets] == list(sets)
    assert description.num_samples == 24
    seen = []
    for name in sets:
        expected_description, expected, expected_state = measured(alone[name])
        (found,) = (item for item in description.datasets if item.name == name)
        assert found.samples_sha256 == expected_description.samples_sha256
        for metric in expected_description.metrics:
            full = metric if name == "train" else f"{metric}@{name}"
            seen.append(full)
            np.testing.assert_array_equal(values[full], expected[metric], err_msg=full)
            np.testing.assert_array_equal(state[full], expected_state[metric], err_msg=full)
    assert tuple(seen) == description.metrics
    assert (values["loss"] != values["loss@test"]).any()


def test_the_loss_of_each_class_or_a_clear_refusal(case):
    """Where the loss is one of (outputs, targets) that splits into samples."""
    built = case.build()
    try:
        evaluator = open_evaluator(built, groups="target")
    except (CallbackFunctionError, SamplesError) as error:
        assert "groups needs a loss" in str(error) or "one whole number for each sample" in str(error)  # noqa: PT017
        return
    evaluator.load(*own_plane(built, evaluator), far_points=[(1.0, 1.0)])
    values = evaluator.measure(np.random.default_rng(3).normal(size=(9, 2)))
    groups = [name for name in evaluator.description.metrics if name.startswith("loss[")]
    evaluator.close()
    assert len(groups) > 1
    stacked = np.stack([values[name] for name in groups], axis=1)
    # Some weights of the groups, the same at all points, make the loss of all.
    shares = np.linalg.lstsq(stacked, values["loss"], rcond=None)[0]
    np.testing.assert_allclose(stacked @ shares, values["loss"], rtol=1e-9)
    assert shares.min() > 0
    assert shares.sum() == pytest.approx(1.0, rel=1e-6)


def test_the_loss_of_each_sample_or_a_clear_refusal(case):
    """Where the loss is one of (outputs, targets) that splits into samples."""
    model, network, dataset, metrics = case.build()
    sets, counts = {"train": dataset, "test": case.build()[2]}, {"train": 24}
    try:
        evaluator = open_evaluator((model, network, sets, metrics), num_samples=counts, keep_samples=True)
    except CallbackFunctionError as error:
        assert "keep_samples needs a loss that has a value for each sample" in str(error)  # noqa: PT017
        assert "let it return outputs" in str(error)  # noqa: PT017
        return
    plane, points = own_plane((model, network), evaluator), np.random.default_rng(3).normal(size=(9, 2))

    def measured(evaluator, points):
        evaluator.load(*plane, far_points=[(1.0, 1.0)])
        found = evaluator.measure(points)
        assert set(evaluator.measure_state(plane[0], plane[2])) == set(evaluator.description.metrics)
        evaluator.close()
        return evaluator.description, found

    description, values = measured(evaluator, points)
    assert [item.name for item in description.kept] == list(sets)
    for item, suffix in zip(description.kept, ("", "@test"), strict=True):
        losses = values[SAMPLE_LOSSES + suffix]
        assert losses.dtype == np.float32
        assert losses.shape == (9, item.count)
        weights = np.frombuffer(item.weights, "<f8") if item.weights else np.ones(item.count)
        counted = np.where(weights > 0, losses, 0).astype(np.float64)
        np.testing.assert_allclose(counted @ weights / weights.sum(), values[f"loss{suffix}"], rtol=1e-6)
        assert len(item.targets) in (0, 8 * item.count)
    assert description.kept[0].count == 24
    # The first samples' losses are what is measured of these alone.
    first = 2
    _, alone = measured(open_evaluator((*case.build()[:3], {}), num_samples=first), points)
    weights = np.frombuffer(description.kept[0].weights, "<f8") if description.kept[0].weights else np.ones(24)
    losses = values[SAMPLE_LOSSES][:, :first].astype(np.float64)
    np.testing.assert_allclose(alone["loss"], losses @ weights[:first] / weights[:first].sum(), rtol=2e-5)


def test_the_losses_of_single_samples_make_the_loss_and_its_error(opened):
    evaluator, plane = opened
    evaluator.load(*plane, far_points=[(1.0, 1.0)])
    points = np.array([[0.0, 0.0], [0.5, -0.5]])
    measured, found = evaluator.measure(points), Worker(evaluator).sample_losses(points)
    if found is None:
        assert "loss_stderr" not in measured
        return
    assert found.numerators.shape == (2, evaluator.description.num_samples)
    reduction = "sum" if found.denominators is None else "mean"
    _, loss, stderr = mean_and_stderr(found.numerators, found.denominators, reduction)
    np.testing.assert_allclose(loss, measured["loss"], rtol=1e-6)
    np.testing.assert_allclose(stderr, measured["loss_stderr"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:along random lines the loss is no parabola")  # ReLU has kinks
def test_networks_are_compared(case, opened):
    built = case.build()
    evaluator, plane = opened
    evaluator.load(*plane, far_points=[(1.0, 1.0)])
    values = evaluator.measure(np.zeros((1, 2)))
    recipes = {name: [another(built[1], seed)] for seed, name in enumerate("ab")}
    found = compare(
        recipes, case.build, directions=4, points=3, trace_lines=1, device_ids=[0], progress=False,
        plan=MeasurementPlan(batch_size=16),
    )  # fmt: skip
    assert np.isfinite(found.loss).all()
    assert found.table()[0].method == f"bootstrap over directions{' and samples' * ('loss_stderr' in values)}"
    assert np.isfinite(found.trace).all()
