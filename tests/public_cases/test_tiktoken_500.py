"""openai/tiktoken#500: what lies in a cache folder that all users can write to was loaded without a question."""

import pytest
import torch
from torch import nn

from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.evaluator import TorchEvaluator


def test_compiled_code_is_not_loaded_from_there(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shared = tmp_path / "summary-landscape" / "torchinductor"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    setup = MeasurementSetup(MeasurementOptions(), plan=MeasurementPlan(4, compile=True))
    data = torch.ones(8, 3), torch.ones(8, 2)
    with pytest.warns(UserWarning, match="runs eagerly: the folder of compiled code is not safe"):
        evaluator = TorchEvaluator(nn.MSELoss(), nn.Linear(3, 2), data, {}, setup)
    assert not evaluator.description.plan.compile
    assert not [path for path in shared.rglob("*") if path.is_file()]
    evaluator.close()
