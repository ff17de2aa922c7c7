"""Recipes are compared in every framework: the same lines through all networks, the trace from losses alone."""

import numpy as np
import pytest
from cases import all_cases, open_evaluator, own_plane
from measured_planes import measure_plane

from collectors.networks.readers import read_network
from landscape import MeasurementPlan
from landscape.functions import compare

CASES = all_cases("EVALUATOR_CASES")


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:along random lines the loss is no parabola")  # ReLU has kinks
def test_networks_are_compared(case):
    built = case.build()
    state = read_network(built[1])
    evaluator = open_evaluator(case.build())
    values = measure_plane(evaluator, own_plane(built, evaluator), np.zeros((1, 2)), far_points=[(1.0, 1.0)])
    random = np.random.default_rng(0)

    def another(size):
        return {
            name: (array * (1 + size * random.standard_normal(array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in state.items()
        }

    recipes = {"a": [another(0.1)], "b": [another(0.1)]}
    found = compare(
        recipes, case.build, directions=4, points=3, trace_lines=1, device_ids=[0], progress=False,
        plan=MeasurementPlan(batch_size=16),
    )  # fmt: skip
    assert np.isfinite(found.loss).all()
    assert found.table()[0].method == f"bootstrap over directions{' and samples' * ('loss_stderr' in values)}"
    assert np.isfinite(found.trace).all()
