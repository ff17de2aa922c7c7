"""The losses of single samples are those that the loss is made of, whatever the framework (contract 2)."""

import numpy as np
import pytest
from cases import all_cases, open_evaluator, own_plane

from workers.measuring.sample_loss import mean_and_stderr
from workers.pools.in_process import Worker


@pytest.mark.parametrize("case", all_cases("EVALUATOR_CASES"), ids=lambda case: case.name)
def test_the_losses_of_single_samples_make_the_loss_and_its_error(case):
    built = case.build()
    evaluator = open_evaluator(built)
    evaluator.load(*own_plane(built, evaluator), far_points=[(1.0, 1.0)])
    points = np.array([[0.0, 0.0], [0.5, -0.5]])
    measured, found = evaluator.measure(points), Worker(evaluator).sample_losses(points)
    evaluator.close()
    if found is None:
        assert "loss_stderr" not in measured
        return
    assert found.numerators.shape == (2, evaluator.description.num_samples)
    reduction = "sum" if found.denominators is None else "mean"
    _, loss, stderr = mean_and_stderr(found.numerators, found.denominators, reduction)
    np.testing.assert_allclose(loss, measured["loss"], rtol=1e-6)
    np.testing.assert_allclose(stderr, measured["loss_stderr"], rtol=1e-5)
