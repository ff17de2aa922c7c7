"""r-lib/lintr#794: a damaged file of a cache ended every later run, though nobody needs it."""

import torch
from torch import nn

from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.samples.torch_samples import read_samples
from workers.torch.kept_plan import KeptPlan


def test_a_plan_that_cannot_be_read_is_none(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    samples, _ = read_samples((torch.ones(8, 3), torch.ones(8, 2)), MeasurementOptions())
    kept = KeptPlan(nn.Linear(3, 2), samples, torch.device("cpu"), MeasurementPlan(None, 1))
    kept._path.parent.mkdir(parents=True)
    kept._path.write_text("[" * 100_000)
    assert kept.find() is None
