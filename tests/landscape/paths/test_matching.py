"""Weight matching against all permutations, on ties, and with several axes of one tensor in a group."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from landscape.paths.matching import PermutationGroup, PermutedAxis, match, permuted

LAYERS = ("first", "second", "third")


def perceptron(seed, dtype=np.float64):
    """Two hidden layers of 4 and 3 units."""
    rng = np.random.default_rng(seed)
    shapes = ((4, 5), (3, 4), (2, 3))
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in zip(LAYERS, shapes, strict=True)}


GROUPS = [
    PermutationGroup.unpermuted(4, [PermutedAxis("first", 0), PermutedAxis("second", 1)]),
    PermutationGroup.unpermuted(3, [PermutedAxis("second", 0), PermutedAxis("third", 1)]),
]


def squared(one, other):
    return sum(float(((one[name].astype(float) - other[name].astype(float)) ** 2).sum()) for name in one)


@pytest.mark.parametrize("seed", range(6))
def test_no_single_permutation_would_be_nearer(seed):
    target, moved = perceptron(2 * seed), perceptron(2 * seed + 1)
    found = match(target, moved, GROUPS)
    reached = squared(target, permuted(moved, found))
    for index, group in enumerate(GROUPS):
        for order in itertools.permutations(range(group.size)):
            others = [found[other] if other != index else group.permuted_by(order) for other in range(2)]
            assert squared(target, permuted(moved, others)) >= reached - 1e-9
    everywhere = [
        squared(target, permuted(moved, [GROUPS[0].permuted_by(one), GROUPS[1].permuted_by(other)]))
        for one in itertools.permutations(range(4))
        for other in itertools.permutations(range(3))
    ]
    assert reached <= np.quantile(everywhere, 0.1)
    assert reached < squared(target, moved)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_ties_are_broken_alike_and_end(dtype):
    """Equal units, as fp16 rounds them, and units that are zero: every order of theirs is as good."""
    target, moved = perceptron(1, dtype), perceptron(2, dtype)
    for state in (target, moved):
        state["first"][1:] = state["first"][1]
        state["second"][:, 1:] = 0
    once, again = (match(target, moved, GROUPS) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one.permutation, other.permutation)
    # What is equal stays where it is.
    same = match(target, target, GROUPS)
    assert [group.moved for group in same] == [0, 0]


def test_a_tensor_with_two_axes_in_one_group():
    """The weights of a recurrent layer: its units send and receive."""
    rng = np.random.default_rng(0)
    group = PermutationGroup.unpermuted(
        7, [PermutedAxis("into", 0), PermutedAxis("again", 0), PermutedAxis("again", 1), PermutedAxis("out", 1)]
    )
    shapes = {"into": (7, 3), "again": (7, 7), "out": (2, 7)}
    target = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    order = rng.permutation(7)
    moved = permuted(target, [group.permuted_by(order)])
    (found,) = match(target, moved, [group])
    np.testing.assert_array_equal(found.permutation, np.argsort(order))
    other = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    assert squared(target, permuted(other, match(target, other, [group]))) <= squared(target, other)


def test_a_flattened_axis():
    """3 channels of 2 x 2 places that a linear layer reads: the places of a channel stay together."""
    weight = np.arange(24.0).reshape(2, 12)
    moved = PermutedAxis("weight", 1, before=1, after=4).permute(weight, np.array([2, 0, 1]))
    np.testing.assert_array_equal(moved, weight.reshape(2, 3, 4)[:, [2, 0, 1]].reshape(2, 12))
    moved = PermutedAxis("weight", 1, before=2, after=2).permute(weight, np.array([2, 0, 1]))
    np.testing.assert_array_equal(moved, weight.reshape(2, 2, 3, 2)[:, :, [2, 0, 1]].reshape(2, 12))


def test_a_tensor_without_elements():
    axis = PermutedAxis("none", 1)
    group = PermutationGroup.unpermuted(4, [PermutedAxis("first", 0), axis])
    target = {"first": np.arange(8.0).reshape(4, 2), "none": np.zeros((0, 4))}
    order = np.array([2, 0, 3, 1])
    moved = permuted(target, [group.permuted_by(order)])
    assert moved["none"].shape == (0, 4)
    (found,) = match(target, moved, [group])
    np.testing.assert_array_equal(found.permutation, np.argsort(order))


@pytest.mark.parametrize("seed", range(4))
def test_orders_inside_parts_against_all_of_them(seed):
    """3 groups of 2 channels; a second tensor has the groups along one axis and their channels along another."""
    whole, second = PermutedAxis("first", 0, after=2), PermutedAxis("second", 1)
    outer = PermutationGroup.unpermuted(3, [whole, second])
    inside = [PermutedAxis("first", 0, within=whole), PermutedAxis("second", 0, within=second)]
    inner = PermutationGroup.unpermuted(2, inside, parts=3)
    rng = np.random.default_rng(seed)
    target, moved = ({"first": rng.standard_normal((6, 2)), "second": rng.standard_normal((2, 3, 2))} for _ in range(2))
    places = np.arange(6).reshape(3, 2)
    found = match(target, moved, [outer, inner])
    np.testing.assert_array_equal(
        permuted(moved, found)["first"],
        moved["first"][np.take_along_axis(places[found[0].permutation], found[1].permutation, 1).ravel()],
    )
    distances = [
        squared(target, permuted(moved, [outer.permuted_by(order), inner.permuted_by(orders)]))
        for order in itertools.permutations(range(3))
        for orders in itertools.product(itertools.permutations(range(2)), repeat=3)
    ]
    assert squared(target, permuted(moved, found)) == pytest.approx(min(distances), abs=1e-9)
