"""JAX: the measured surface bends along a plane's eigenvectors as the eigenvalues say."""

import jax_cases
import numpy as np
import pytest

from landscape import MeasurementPlan, evaluate
from landscape.functions import hessian_plane

HERE = {"device_ids": [0], "progress": False}


def test_second_differences_are_the_eigenvalues():
    build = jax_cases.build_plain
    line = hessian_plane(build()[1], build, which="top", **HERE)
    step = 1e-2 * line.longest
    seen = evaluate(line, build, x=[-step, 0.0, step], plan=MeasurementPlan(16, 1), **HERE).loss
    assert (seen[0] - 2 * seen[1] + seen[2]) / step**2 == pytest.approx(line.curvature.eigenvalues[0], rel=0.02)
    assert np.isfinite(line.norms).all()
