"""Labels of axes: joined, split, fixed."""

import pytest

from landscape.paths.axis_labels import AxisLabels, NoCommonPartsError


def lengths(labels, axis):
    return [labels.length([label]) for label in labels.labels(axis)]


def test_joined_axes_are_divided_as_both_are():
    labels = AxisLabels()
    one = [*labels.new_axis(3), *labels.new_axis(64)]
    other = [*labels.new_axis(12), *labels.new_axis(16)]
    labels.join(one, other)
    assert lengths(labels, one) == lengths(labels, other) == [3, 4, 16]
    assert labels.labels(one) == labels.labels(other)


def test_a_split_reaches_every_axis_of_the_label():
    labels = AxisLabels()
    (axis,) = labels.new_axes([12])
    same = labels.new_axis(12)
    labels.join(axis, same)
    first, second = labels.divide([axis], (3, 4))
    labels.fix(first)
    assert labels.labels(same) == [*first, *second]
    assert [labels.is_free(label) for label in labels.labels(same)] == [False, True]


def test_what_does_not_fit_is_fixed():
    labels = AxisLabels()
    one = [*labels.new_axis(2), *labels.new_axis(3)]
    other = [*labels.new_axis(3), *labels.new_axis(2)]
    labels.join(one, other)
    assert not any(labels.is_free(label) for axis in (one, other) for label in labels.labels(axis))
    with pytest.raises(NoCommonPartsError):
        labels.divide([labels.new_axis(6)], (4, 2))


def test_axes_of_length_one_have_no_label():
    labels = AxisLabels()
    axes = labels.new_axes([1, 6, 1])
    assert [len(axis) for axis in axes] == [0, 1, 0]
    assert [lengths(labels, axis) for axis in labels.divide(axes, (2, 1, 3))] == [[2], [], [3]]
