"""yixuan/spectra#144: of an eigenvalue that occurs several times, one copy is found and a smaller one is returned."""

import numpy as np
import torch
from torch import nn

from landscape.functions import measure_curvature

INPUTS = torch.diag(torch.tensor([3.0, 3.0, 3.0, 2.0, 1.0, 0.5], dtype=torch.float64))


def callback_fn():
    torch.manual_seed(0)
    return nn.MSELoss(), nn.Linear(6, 1, bias=False).double(), (INPUTS, torch.ones(6, 1, dtype=torch.float64)), {}


def test_all_copies_are_listed():
    found = measure_curvature(callback_fn()[1], callback_fn, top=4, trace_probes=0, device_ids=[0], progress=False)
    np.testing.assert_allclose(found.eigenvalues[0], [3, 3, 3, 4 / 3], rtol=1e-6)
