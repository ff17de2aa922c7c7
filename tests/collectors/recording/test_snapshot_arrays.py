"""Which arrays a snapshot takes, and how it refuses others."""

import ml_dtypes
import numpy as np
import pytest
import torch

from collectors import SummaryCollector
from collectors.run_directory import RunDirectory


def collector(folder):
    return SummaryCollector(folder, keep_default_action=False, collect_landscape={"intervals": [range(3)]})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.arange(3.0), np.arange(3.0)),
        ([1.0, 2.0], np.array([1.0, 2.0])),
        (torch.ones(2, requires_grad=True), np.ones(2, np.float32)),
        (torch.ones(2, dtype=torch.bfloat16), np.ones(2, ml_dtypes.bfloat16)),
    ],
    ids=["array", "list", "tensor", "bfloat16"],
)
def test_it_is_saved_as_it_is(tmp_path, given, expected):
    with collector(tmp_path) as run:
        for number in range(3):
            run.snapshot(number, {"a": given})
    found = RunDirectory(tmp_path).checkpoint(1).read("a")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wrong", [None, np.array(["x"]), [[1.0], [2.0, 3.0]], "text"])
def test_what_is_no_array_of_numbers_is_named(tmp_path, wrong):
    with (
        pytest.raises(
            TypeError, match=r"^arrays\['a'\] must be an array of numbers, but is .*, which checkpoints cannot hold"
        ),
        collector(tmp_path) as run,
    ):
        run.snapshot(0, {"a": wrong})
    assert list(tmp_path.iterdir()) == []
