"""gwastro/pycbc#4831: results in HDF5 had no checksums, so that a changed value was as good as another."""

import h5py
import pytest
import torch
from torch import nn

from landscape import Curvature
from landscape.errors import LandscapeDamagedError
from landscape.functions import measure_curvature

DATA = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.ones(8, 1)


def test_a_changed_eigenvalue_is_an_error(tmp_path):
    path = tmp_path / "curvature.h5"
    network = nn.Linear(3, 1)
    measure_curvature(
        network, lambda: (nn.MSELoss(), network, DATA, {}), top=1, trace_probes=0, output=path, device_ids=[0],
        progress=False,
    )  # fmt: skip
    with h5py.File(path, "r+") as file:
        file["eigenvalues"][0, 0] *= 1.001
    with pytest.raises(LandscapeDamagedError, match="damaged"):
        Curvature.load(path)
