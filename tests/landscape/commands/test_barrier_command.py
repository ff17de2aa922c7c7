"""``landscape connect``: the straight line and a curve, the same as in Python, and their picture."""

import sys

import numpy as np
import pytest
import torch
from command_line import command, invoke
from two_networks import INPUTS, callback_fn, trained

from landscape import Landscape
from landscape.errors import LandscapeIdentityError
from landscape.functions import barrier
from landscape.paths.alignment import align
from landscape.paths.barrier import Barrier
from landscape.paths.path import Path

QUICK = ("--function", "two_networks:callback_fn", "--devices", "0", "--points", "5", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("barrier")
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(trained(seed).state_dict(), folder / f"{name}.pt")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_barrier_says_and_keeps_what_python_finds(folder):
    result = invoke("connect", "first=a.pt", "second=b.pt", *QUICK, "-o", "line.h5")
    expected = barrier(trained(0), trained(1), callback_fn, points=5, device_ids=[0], progress=False)
    kept = Landscape.load(folder / "line.h5")
    assert f"{folder / 'line.h5'}\n  {expected!r}\n" in result.output
    assert [kept.checkpoints.name[row] for row in kept.checkpoints.networks] == ["first", "second"]


@pytest.fixture(scope="module")
def short(folder):
    command("connect", "a.pt", "b.pt", *QUICK, "--points", "3", "-o", "short.h5", folder=folder)
    return folder / "short.h5"


def test_a_barrier_has_a_picture(short):
    invoke("plot", short, "--kind", "barriers", "-o", "short.png", "--dpi", "60")
    assert short.with_suffix(".png").stat().st_size > 5000


def test_errors_name_what_is_typed(folder, short):
    with pytest.raises(ValueError, match="--points must be an int of at least 3, but got 2"):
        invoke("connect", "a.pt", "b.pt", *QUICK, "--points", "2")
    with pytest.raises(ValueError, match="A and B must have different names, but got a, a"):
        invoke("connect", "a=a.pt", "a=b.pt", *QUICK)
    (folder / "sub").mkdir()
    (folder / "sub" / "short.h5").write_bytes(short.read_bytes())
    with pytest.raises(ValueError, match="--kind barriers calls each way by its file's name"):
        invoke("plot", "short.h5", "sub/short.h5", "--kind", "barriers", "-o", "two.png")


@pytest.mark.slow
def test_connect_fits_measures_and_keeps(folder):
    typed = ("--kind", "bezier", *QUICK, "--steps", "30", "-o", "curve.h5")
    result = invoke("connect", "a.pt", "b.pt", *typed)
    path, found = Path.load(folder / "curve_path.safetensors"), Barrier.of(Landscape.load(folder / "curve.h5"))
    assert f"{folder / 'curve.h5'}\n  {path!r}\n  {found!r}\n" in result.output
    assert found.height < barrier(trained(0), trained(1), callback_fn, points=5, device_ids=[0], progress=False).height
    invoke("connect", "a.pt", "b.pt", *typed)
    with pytest.raises(ValueError, match="--bends must be an int from 1 to 64, but got 0"):
        invoke("connect", "a.pt", "b.pt", *typed, "--bends", "0", "-o", "other.h5")
    torch.save(trained(2, epochs=1).state_dict(), folder / "c.pt")
    differs = r"path file .* holds another experiment.*\n  B: the file has .*\nPass --overwrite"
    with pytest.raises(LandscapeIdentityError, match=differs):
        invoke("connect", "a.pt", "c.pt", *typed)
    assert "curve between networks" in invoke("info", "curve.h5").output


def test_connect_aligns_first(folder):
    typed = ("--kind", "bezier", *QUICK, "--steps", "5", "--align", "-o", "aligned.h5")
    invoke("connect", "a.pt", "b.pt", *typed)
    aligned = align(trained(1), to=trained(0), example=INPUTS[:32])
    end = Path.load(folder / "aligned_path.safetensors").point(1.0)
    for name, array in aligned.weights.items():
        np.testing.assert_allclose(end[name], array, atol=1e-6)
