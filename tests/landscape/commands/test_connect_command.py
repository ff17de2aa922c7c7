"""``landscape connect``, of lines, curves and units in one order: the same as in Python, from what is typed."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from command_line import command, invoke
from examples import train_run
from torch import nn
from two_networks import INPUTS, callback_fn, save_both, trained

from collectors.run_directory.directory import RunDirectory
from collectors.weights.safetensors_file import CheckpointFile
from landscape import Landscape
from landscape.errors import LandscapeIdentityError, LandscapeWriteError
from landscape.functions import barrier
from landscape.paths.alignment import align
from landscape.paths.barrier import Barrier
from landscape.paths.path import Path
from workers import OwnLoss

QUICK = ("--function", "two_networks:callback_fn", "--devices", "0", "--points", "5", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_both(tmp_path_factory.mktemp("barrier"))


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


inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
targets = torch.arange(40) % 3
PAIR = ("--function", f"{__name__}:pair")


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def pair():
    return nn.CrossEntropyLoss(), network(), (inputs, targets), {}


def own():
    def step(net, batch):
        return nn.functional.cross_entropy(net(input=batch["x"]), batch["y"])

    rows = [{"x": inputs[k : k + 20], "y": targets[k : k + 20]} for k in (0, 20)]
    return OwnLoss(step), network(), rows, {}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder with two small networks, in which commands are typed."""
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(network(seed).state_dict(), tmp_path / f"{name}.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


aligned = partial(invoke, "connect", "--align")


@pytest.mark.parametrize("function", ["pair", "own"])
def test_an_aligned_file(small, function):
    said = aligned("a.pt", "b.pt", "--function", f"{__name__}:{function}", "-o", "aligned.safetensors").stdout
    expected = align(small / "b.pt", to=small / "a.pt", network=network(), example=inputs)
    written = CheckpointFile(small / "aligned.safetensors")
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(written.read(name), array)
    lines = expected.summary().splitlines()
    assert said.splitlines()[:3] == ["aligned.safetensors", f"  {lines[0]}", f"  {lines[1]}"]


def test_files_of_one_name_are_aligned_and_measured(small):
    for name in "ab":
        (small / f"run_{name}").mkdir()
        (small / f"{name}.pt").rename(small / f"run_{name}/model.pt")
    typed = (*PAIR, "--points", "3", "--devices", "0", "--quiet", "-o", "way.h5")
    aligned("run_a/model.pt", "run_b/model.pt", *typed)
    assert list(Landscape.load("way.h5").checkpoints.name) == ["a", "b"]


@pytest.mark.parametrize("kind", ["line", "bezier"])
def test_extremes_are_measured_along_the_way(small, kind):
    steps = () if kind == "line" else ("--steps", "3")
    typed = (*PAIR, "--kind", kind, *steps, "--points", "3", "--extremes", "--devices", "0", "--quiet", "-o", "way.h5")
    invoke("connect", "a.pt", "b.pt", *typed)
    metrics = Landscape.load("way.h5").metrics
    assert np.isfinite([metrics["max_eigenvalue"], metrics["min_eigenvalue"]]).all()
    assert (metrics["max_eigenvalue"] > metrics["min_eigenvalue"]).all()


def test_a_curve_is_fitted_on_the_chosen_samples(small):
    chosen = ("--samples", "16", "--sample-choice", "random", "--seed", "3")
    typed = (*PAIR, "--kind", "bezier", "--steps", "2", "--points", "3", "--no-compile", "--devices", "0", "--quiet")
    invoke("connect", "a.pt", "b.pt", *typed, *chosen, "-o", "way.h5")
    of_way, of_curve = Landscape.load("way.h5").attributes["identity"]["samples"], Path.load("way_path.safetensors")
    assert of_curve.curve.samples["sha256"] == of_way["sha256"]
    assert of_way["count"] == 16


def test_the_forecast_of_a_curve_counts_what_is_measured_along_it(small):
    typed = (*PAIR, "--kind", "bezier", "--steps", "2", "--points", "7", "--devices", "0", "--dry-run", "-o", "way.h5")
    told = invoke("connect", "a.pt", "b.pt", *typed).stdout
    assert "2 steps" in told
    assert "7 of the grid" in told
    assert sorted(path.name for path in small.iterdir()) == ["a.pt", "b.pt"]
    invoke("connect", "a.pt", "b.pt", *(word for word in typed if word != "--dry-run"), "--quiet")
    assert "7 of the grid" not in invoke("connect", "a.pt", "b.pt", *typed).stdout, "they are measured along the curve"
    assert "7 of the grid" in invoke("connect", "a.pt", "b.pt", *typed, "--overwrite").stdout


def test_options_of_measuring_mean_nothing_for_an_alignment_alone(small):
    for option, text in ((("--points", "50"), "--points"), (("--precision", "bfloat16"), "--precision")):
        with pytest.raises(ValueError, match=f"^{text} must be left out with --output aligned.safetensors"):
            aligned("a.pt", "b.pt", *PAIR, *option, "-o", "aligned.safetensors")


def test_what_is_there_is_not_replaced(small):
    (small / "kept.safetensors").write_text("kept")
    arguments = ("a.pt", "b.pt", *PAIR, "-o", "kept.safetensors")
    with pytest.raises(
        ValueError, match=r"--output kept\.safetensors exists already; choose another name, or pass --ov"
    ):
        aligned(*arguments)
    with pytest.raises(LandscapeWriteError, match=r"kept\.safetensors is no weights file and was left as it is"):
        aligned(*arguments, "--overwrite")
    assert (small / "kept.safetensors").read_text() == "kept"
    (small / "kept.safetensors").write_bytes(b"")
    for _ in range(2):
        aligned(*arguments, "--overwrite")
        assert len(CheckpointFile(small / "kept.safetensors").shapes) == 4


def test_neither_network_is_replaced(small):
    arguments = (*PAIR, "--overwrite", "-o")
    aligned("a.pt", "b.pt", *arguments, "c.safetensors")
    kept = (small / "c.safetensors").read_bytes()
    (small / "link.safetensors").symlink_to("c.safetensors")
    for name in ("c", "link"):
        with pytest.raises(LandscapeWriteError, match=rf"^--output must not be one of the inputs, but {name}\.safet"):
            aligned("a.pt", "c.safetensors", *arguments, f"{name}.safetensors")
    found = align("c.safetensors", to=small / "b.pt", network=network(), example=inputs)
    with pytest.raises(LandscapeWriteError, match="path must not be one of the inputs"):
        found.save("c.safetensors")
    assert (small / "c.safetensors").read_bytes() == kept


def test_checkpoints_of_a_run(small):
    train_run(small / "run", epochs=3)
    aligned("run@1", "run", "--function", "examples:batch_norm", "-o", "aligned.safetensors")
    run, written = RunDirectory(small / "run"), CheckpointFile(small / "aligned.safetensors")
    assert set(written.shapes) >= set(run.checkpoint(3).shapes)
