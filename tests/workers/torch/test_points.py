"""Results that stay on the device, added up in tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from worker_cases import CASES, case, classes, evaluator_of, features, mlp

from workers.measuring.sample_loss import mean_over_samples
from workers.torch.points import read_points, run_pending

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", CASES)
def test_sums_on_the_device_equal_those_of_numpy(name):
    """What is added up in tensors, without waiting for a device, against the same in arrays."""
    loss, network, dataset = case(name)
    evaluator = evaluator_of(loss, network, dataset, batch_size=16)
    total = evaluator._main.loss
    batches = evaluator._main.samples.batches(16)
    with torch.no_grad():
        (found,) = read_points([run_pending(evaluator._forward, batches, total, {}, CPU)])
    numerators, denominators = (torch.cat(part).numpy() for part in (total._numerators, total._denominators))
    expected = mean_over_samples(numerators, denominators)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12)
    evaluator.close()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_every_reduction_equals_numpys(reduction, count):
    evaluator = evaluator_of(nn.CrossEntropyLoss(reduction=reduction), mlp(), (features(count), classes(count)))
    total = evaluator._main.loss
    with torch.no_grad():
        evaluator._pending()
        found = total.result()
    numerators, denominators = (torch.cat(part).numpy() for part in (total._numerators, total._denominators))
    for key, value in mean_over_samples(numerators, denominators, reduction).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12)
    evaluator.close()
