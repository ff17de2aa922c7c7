"""madeline-scyphers/boa#151: a result that is no number and a trial that failed were told apart nowhere."""

import numpy as np
from figure_cases import build

from landscape import Landscape
from landscape.record.checks import PointStatus


def test_they_are_counted_apart():
    data = build(rows=4, columns=5, points=2)
    data.metrics["loss"][0, :3] = np.inf
    data.metrics["loss"][1, :2] = np.nan
    data.status[1, :2] = PointStatus.FAILED
    assert ", 3 not finite, 2 failed" in repr(Landscape(data))
