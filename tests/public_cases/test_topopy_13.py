"""maljovec/topopy#13: flat regions had minima that are none."""

import numpy as np
from figure_cases import build

from landscape import Landscape


def test_a_flat_landscape_has_none():
    found = Landscape(build(np.full((3, 5), 0.25), points=0)).topology()
    assert found.minima == ()
    assert found.flat
    assert "flat" in repr(found)
