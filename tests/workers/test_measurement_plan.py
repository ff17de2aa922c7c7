"""How a loss is computed: the plan, PyTorch's settings, and that neither changes a value."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import SUPPORT
from scripts import run_script
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import CASES, case, classes, evaluator_of, features, mlp, plane_of

from workers.evaluator import MeasurementSetup
from workers.measurement_plan import MeasurementPlan, plan_text
from workers.torch.evaluator import TorchEvaluator

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [1.0, 1.0]])
PLANS = st.builds(
    MeasurementPlan,
    batch_size=st.none() | st.integers(1, 10**6),
    threads=st.integers(1, 256),
    channels_last=st.booleans(),
    compile=st.booleans(),
    reason=st.text(),
)


def measured(evaluator, network):
    """Returns the values of the points on a plane of a network; closes the evaluator."""
    evaluator.load(*plane_of(network))
    values = evaluator.measure(POINTS)
    evaluator.close()
    return values


@given(PLANS)
def test_a_plan_survives_json(plan):
    assert MeasurementPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be an int of at least 1"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be an int"),
        ({"threads": 0}, ValueError, "threads must be an int from 1 to 4096"),
        ({"channels_last": 1}, TypeError, "channels_last must be a bool"),
        ({"compile": "yes"}, TypeError, "compile must be a bool"),
        ({"reason": 1}, TypeError, "reason must be a str"),
        ({"precision": "half"}, ValueError, r"precision must be .*'float32'.*, but got .*'half'"),
        ({"speed": 3}, ValueError, r"measurement_plan has unknown keys \['speed'\]"),
        ([1], TypeError, "measurement_plan must be a dict"),
    ],
)
def test_plans_are_checked(value, error, text):
    with pytest.raises(error, match=text):
        MeasurementPlan.from_json(value)


@pytest.mark.parametrize(
    ("plan", "details", "text"),
    [
        (MeasurementPlan(256), "", "batches of 256 samples, 1 thread per worker, not compiled"),
        (
            MeasurementPlan(256, compile=True, compiler="AOTInductor", reason="compiled: compiling pays off"),
            "1.7 times as fast here, compiled in 12 s",
            "batches of 256 samples, 1 thread per worker, compiled code (compiling pays off; 1.7 times as fast here, "
            "compiled in 12 s)",
        ),
        (
            MeasurementPlan(None, 2, channels_last=True, compile=True, compiler="torch.compile", first_layer=True),
            "",
            "batches kept as they are, 2 threads per worker, images with their channels last in memory, the first "
            "layer computed once for all points, compiled code by torch.compile",
        ),
        (
            MeasurementPlan(1, precision="tf32", reason="not compiled: memory ran out"),
            "",
            "batches of 1 sample, 1 thread per worker, computed in TF32, not compiled (memory ran out)",
        ),
    ],
)
def test_a_plan_in_words(plan, details, text):
    assert plan_text(plan.to_json(), details) == text
    assert plan_text(None) == plan_text({}) == ""


@pytest.mark.parametrize("name", ["plain", "batchnorm", "transformer"])
@pytest.mark.parametrize(
    "plan", [MeasurementPlan(7, 2), MeasurementPlan(64, 1, channels_last=True), MeasurementPlan(None, 1)]
)
def test_a_plan_changes_no_value(name, plan):
    results = []
    for chosen in (MeasurementPlan(16, 1), plan, plan):
        evaluator = evaluator_of(*case(name), plan=chosen)
        assert evaluator.description.plan.threads == chosen.threads
        results.append(measured(evaluator, case(name)[1]))
    for key in results[0]:
        np.testing.assert_allclose(results[1][key], results[0][key], rtol=1e-4 if "stderr" in key else 1e-5, atol=1e-7)
        assert results[1][key].tobytes() == results[2][key].tobytes()


@pytest.mark.parametrize("name", CASES)
def test_tuning_chooses_a_plan_that_works(name):
    loss, network, dataset = case(name)
    evaluator = TorchEvaluator(loss, network, dataset, {}, MeasurementSetup(threads=2))
    plan = evaluator.description.plan
    assert plan.threads in (1, 2)
    assert plan.compile is False
    if name == "transformer":  # each batch is padded to its own length
        assert plan.batch_size is None
    else:
        assert 1 <= plan.batch_size <= evaluator.description.num_samples
    tuned = measured(evaluator, network)["loss"]
    expected = measured(evaluator_of(*case(name), batch_size=11), case(name)[1])["loss"]
    np.testing.assert_allclose(tuned, expected, rtol=1e-5 if "16" not in name else 1e-2, atol=1e-7)


def test_tuning_bears_batches_of_padding():
    """The first batches hold no target that counts; only the whole data set must."""
    targets = classes()
    targets[:40] = -100
    loader = DataLoader(TensorDataset(features(), targets), batch_size=4)
    network = mlp()
    evaluator = TorchEvaluator(nn.CrossEntropyLoss(), network, loader, {}, MeasurementSetup())
    assert np.isfinite(measured(evaluator, network)["loss"]).all()


class Watching(nn.Linear):
    """Records the settings under which it runs."""

    def __init__(self):
        super().__init__(6, 4)
        self.seen = []

    def forward(self, inputs):
        threads, grad, autocast = torch.get_num_threads(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        self.seen.append((threads, grad, autocast, self.training, torch.backends.mkldnn.matmul.fp32_precision))
        return super().forward(inputs)


def watched(plan):
    network = Watching()
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, (features(), classes()), plan=plan)
    evaluator.load(*plane_of(network))
    network.seen.clear()
    evaluator.measure(POINTS)
    evaluator.close()
    return set(network.seen)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_settings_of_the_plan_hold_inside_and_the_users_come_back(threads):
    threads_before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu"):
            seen = watched(MeasurementPlan(20, threads))
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_num_threads() == 2
        assert torch.is_grad_enabled()
    finally:
        torch.set_num_threads(threads_before)
        torch.set_float32_matmul_precision("highest")
    (settings,) = seen
    assert settings[:4] == (threads, False, False, False)
    assert settings[4] in ("ieee", "none")


PRECISION = """
import contextlib, os, sys
sys.path[:0] = sys.argv[1:]
import torch
from test_measurement_plan import watched
from workers.measurement_plan import MeasurementPlan
from workers.torch.settings import _cudnn, _full_precision
backends = torch.backends
owners = {
    "all": backends, "cudnn": backends.cudnn, "conv": backends.cudnn.conv, "rnn": backends.cudnn.rnn,
    "matmul": backends.cuda.matmul, "oneDNN matmul": backends.mkldnn.matmul, "oneDNN conv": backends.mkldnn.conv,
}
switches = ("enabled", "benchmark", "deterministic")

def state():
    found = {name: owner.fp32_precision for name, owner in owners.items()}
    for name, read in (("old", lambda: backends.cudnn.allow_tf32), ("older", torch.get_float32_matmul_precision)):
        try:
            found[name] = read()
        except RuntimeError:  # PyTorch's own answer, where the newer attributes contradict it
            found[name] = None
    return found | {name: getattr(backends.cudnn, name) for name in switches}

def check(change):
    exec(change)
    backends.cudnn.benchmark = True
    before = state()
    for types, tf32 in ((["cuda"], False), (["cpu"], False), (["cpu", "cuda"], False), (["cuda"], True),
                        (["cpu", "cuda"], True)):
        with contextlib.ExitStack() as stack:
            if "cuda" in types:
                _cudnn(stack, tf32=tf32)
            _full_precision(stack, types, tf32=tf32)
            found = state()
            parts = ["conv", "rnn", "matmul"] if "cuda" in types else []
            if tf32:
                assert [found[part] for part in parts] == ["tf32"] * 3, (change, types, found)
                if change == "pass":  # who reads the older attributes, as the compiler does, finds the same
                    assert (found["old"], backends.cuda.matmul.allow_tf32) == (True, True)
                parts = []
            parts += ["oneDNN matmul", "oneDNN conv"] if "cpu" in types else []
            assert all(found[part] in ("ieee", "none") for part in parts), (change, types, tf32, found)
            if "cuda" in types:
                assert [found[name] for name in switches] == [True, False, True]
        assert state() == before, (change, types, before, state())
    (settings,) = watched(MeasurementPlan(20, 1))
    assert settings[4] in ("ieee", "none"), (change, settings)
    assert state() == before, (change, before, state())

for change in (
    "pass",
    "backends.fp32_precision = 'tf32'",
    "backends.fp32_precision = 'ieee'",
    "backends.cudnn.fp32_precision = 'tf32'",
    "backends.cudnn.conv.fp32_precision = 'tf32'",
    "backends.cudnn.conv.fp32_precision = 'ieee'",
    "backends.cudnn.rnn.fp32_precision = 'ieee'",
    "backends.fp32_precision = 'tf32'; backends.cudnn.conv.fp32_precision = 'ieee'",
    "backends.cuda.matmul.fp32_precision = 'tf32'",
    "backends.mkldnn.fp32_precision = 'bf16'",
    "backends.mkldnn.conv.fp32_precision = 'bf16'",
    "backends.mkldnn.conv.fp32_precision = 'bf16'; backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "backends.cudnn.allow_tf32 = False",
    "backends.cuda.matmul.allow_tf32 = True",
    "torch.set_float32_matmul_precision('high')",
):
    process = os.fork()  # the newer attributes cannot be unset
    if not process:
        try:
            check(change)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(1)
    assert os.waitpid(process, 0)[1] == 0, change
"""


@pytest.mark.slow
def test_precision_is_full_whichever_way_the_user_set_it_and_comes_back():
    """PyTorch keeps a GPU's settings also where it has none; ``cudnn.flags`` raises for most of them."""
    run_script(PRECISION, SUPPORT, Path(__file__).parent)


def test_settings_come_back_after_an_exception():
    network, plan = nn.Linear(6, 4), MeasurementPlan(20, threads=3)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, (features(), classes()), plan=plan)
    evaluator.load(*plane_of(network))
    network.forward = Mock(side_effect=RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        evaluator.measure(POINTS)
    assert torch.get_num_threads() == 1
    assert torch.is_grad_enabled()
    evaluator.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.parametrize("tools", ["", "broken"])
def test_without_a_compiler_it_is_eager_and_says_so(tools, monkeypatch, tmp_path):
    compiler = tmp_path / "g++"
    if tools:
        compiler.write_text("#!/bin/sh\nexit 1\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "packages"))
    network = nn.Sequential(mlp(), nn.Sigmoid(), nn.Linear(4, 4 if tools else 3))
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="compile=True was asked for, but the network runs eagerly"):
        evaluator = evaluator_of(
            nn.CrossEntropyLoss(), network, (features(), classes(number=3)), plan=MeasurementPlan(13, 1, compile=True)
        )
    assert "runs eagerly" in evaluator.description.notes[0]
    assert "C++" in evaluator.description.notes[0] or tools
    values = measured(evaluator, network)["loss"]
    eager = evaluator_of(nn.CrossEntropyLoss(), network, (features(), classes(number=3)), batch_size=13)
    assert measured(eager, network)["loss"].tobytes() == values.tobytes()
