"""Labels of axes: joined, split, fixed."""

import pytest

from landscape.paths.axis_labels import AxisLabels, NoCommonPartsError


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
