"""timgaripov/swa#8: an exact copy of a network had another loss, with BatchNorm statistics that were computed anew."""

import pytest
from digits_networks import build, callback_fn, own_loss, train

from landscape.functions import barrier


def test_the_end_of_a_barrier_keeps_its_statistics():
    a, b = (train(build(seed), epochs=1, seed=seed) for seed in (0, 1))
    found = barrier(a, b, callback_fn, points=3, device_ids=[0], progress=False).landscape
    assert found.attributes["buffers"] == "recalibrate"
    assert found.loss[-1] == pytest.approx(own_loss(b), rel=1e-5)
