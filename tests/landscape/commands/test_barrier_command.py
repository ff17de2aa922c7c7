"""``landscape barrier``: the same as in Python, and its picture."""

import sys

import numpy as np
import pytest
import torch
from places import SUPPORT
from two_networks import INPUTS, callback_fn, trained
from typer.testing import CliRunner

from landscape import Barrier, Landscape, Path, align, barrier
from landscape.cli import app


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(trained(seed).state_dict(), tmp_path / f"{name}.pt")
    (tmp_path / "my_barrier.py").write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\nfrom two_networks import callback_fn\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_barrier", None)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_barrier_says_and_keeps_what_python_finds(folder):
    common = ("--function", "my_barrier:callback_fn", "--devices", "0", "--points", "5", "--no-progress")
    result = invoke("barrier", "first=a.pt", "second=b.pt", *common, "-o", "line.h5")
    assert result.exit_code == 0, result.output
    expected = barrier(trained(0), trained(1), callback_fn, points=5, device_ids=[0], progress=False)
    kept = Landscape.load(folder / "line.h5")
    assert f"{folder / 'line.h5'}\n  {expected!r}\n" in result.output
    assert [kept.checkpoints.name[row] for row in kept.checkpoints.networks] == ["first", "second"]
    result = invoke("plot", "line.h5", "--kind", "barriers", "-o", "line.png")
    assert result.exit_code == 0, result.output
    assert (folder / "line.png").stat().st_size > 5000


@pytest.mark.slow
def test_errors_name_what_is_typed(folder):
    common = ("--function", "my_barrier:callback_fn", "--devices", "0", "--no-progress")
    result = invoke("barrier", "a.pt", "b.pt", *common, "--points", "2")
    assert "--points must be an int of at least 3, but got 2" in str(result.exception)
    result = invoke("barrier", "a=a.pt", "a=b.pt", *common)
    assert "A and B must have different names, but got a, a" in str(result.exception)
    line = invoke("barrier", "a.pt", "b.pt", *common, "--points", "3", "-o", "line.h5")
    assert line.exit_code == 0, line.output
    (folder / "sub").mkdir()
    (folder / "sub" / "line.h5").write_bytes((folder / "line.h5").read_bytes())
    result = invoke("plot", "line.h5", "sub/line.h5", "--kind", "barriers", "-o", "two.png")
    assert "--kind barriers calls each way by its file's name" in str(result.exception)


@pytest.mark.slow
def test_connect_fits_measures_and_keeps(folder):
    common = ("--function", "my_barrier:callback_fn", "--devices", "0", "--points", "5", "--no-progress")
    result = invoke("connect", "a.pt", "b.pt", *common, "--steps", "60", "-o", "curve.h5")
    assert result.exit_code == 0, result.output
    path, found = Path.load(folder / "curve_path.safetensors"), Barrier.of(Landscape.load(folder / "curve.h5"))
    assert f"{folder / 'curve.h5'}\n  {path!r}\n  {found!r}\n" in result.output
    assert found.height < barrier(trained(0), trained(1), callback_fn, points=5, device_ids=[0], progress=False).height
    result = invoke("connect", "a.pt", "b.pt", *common, "--steps", "60", "-o", "curve.h5")
    assert result.exit_code == 0, result.output
    result = invoke("connect", "a.pt", "b.pt", *common, "--bends", "0", "-o", "other.h5")
    assert "--bends must be an int from 1 to 64, but got 0" in str(result.exception)
    result = invoke("connect", "a.pt", "b.pt", *common, "--steps", "20", "--align", "-o", "aligned.h5")
    assert result.exit_code == 0, result.output
    aligned = align(trained(1), to=trained(0), example=INPUTS[:32])
    end = Path.load(folder / "aligned_path.safetensors").point(1.0)
    for name, array in aligned.weights.items():
        np.testing.assert_allclose(end[name], array, atol=1e-6)
    result = invoke("info", "curve.h5")
    assert "curve between networks" in result.output
