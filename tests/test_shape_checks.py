"""The shapes that our functions and records promise are checked while the tests run."""

import dataclasses
import os

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from landscape.planes.extent import axis_around
from landscape.topology.merging import Basins

pytestmark = pytest.mark.skipif("EXECUTE_SHAPES" not in os.environ, reason="only `make test-all` executes shapes")


def test_an_array_of_another_shape_or_type_is_an_error():
    assert axis_around(np.arange(3.0), 5, 0.1).shape == (5,)
    for wrong in (np.zeros((3, 2)), np.arange(3)):
        with pytest.raises(TypeCheckError, match="values"):
            axis_around(wrong, 5, 0.1)


def test_so_are_those_of_a_record():
    right = {field.name: np.zeros(2, int) for field in dataclasses.fields(Basins)} | {"error": np.zeros(2)}
    Basins(**right)
    for wrong in (np.zeros((2, 2)), np.zeros(3), np.zeros(2, int)):
        with pytest.raises(TypeCheckError, match="error"):
            Basins(**right | {"error": wrong})
