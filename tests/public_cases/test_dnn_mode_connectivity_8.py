"""timgaripov/dnn-mode-connectivity#8: with BatchNorm, a curve's ends had other losses than the networks it connects."""

import numpy as np
import pytest
from digits_networks import build, callback_fn, own_loss, train

from landscape import Measure
from landscape.functions import connect


def test_a_curve_ends_at_the_networks_that_it_connects():
    a, b = (train(build(seed), epochs=1, seed=seed) for seed in (0, 1))
    path = connect(a, b, callback_fn, steps=2, device_ids=[0], progress=False)
    found = Measure(callback_fn, device_ids=[0], progress=False).barrier(path, points=3).landscape.loss
    assert found[[0, -1]].tolist() == pytest.approx([own_loss(a), own_loss(b)], rel=1e-5)
    assert np.isfinite(found).all()
