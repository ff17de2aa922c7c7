"""How much of the Hessian's eigenvectors THOR sees: against dense Kronecker products, and along a run on digits."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from typer.testing import CliRunner

from collectors import RunDirectory, RunDirectoryError, SummaryCollector, thor
from landscape import Curvature, Landscape, SummaryLandscape, factor_plane, measure_curvature
from landscape.cli import app
from landscape.curvature.facts import curvature_json, curvature_text
from landscape.curvature.share_seen import LEADING, share_seen
from landscape.errors import PlaneError
from landscape.facts import summary_text

STEPS = [0, 1, 6, 12]
QUIET = {"device_ids": [0], "progress": False, "trace_probes": 0, "top": 3}
HERE = str(Path(__file__).parent)
CALLBACK = "from test_share_seen import callback_fn\n"


def callback_fn():
    digits = load_digits()
    images = torch.tensor(digits.data[:300], dtype=torch.float32) / 16
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))
    return nn.CrossEntropyLoss(), network, (images, torch.tensor(digits.target[:300])), {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on digits with THOR, refreshed at steps 1, 5 and 9."""
    folder = tmp_path_factory.mktemp("digits")
    loss_function, network, (images, targets), _ = callback_fn()
    optimizer = thor(network, 0.01, 0.03, 0.9, frequency=4)
    settings = {"intervals": [STEPS], "num_samples": 300, "landscape_size": 3, "factors": True}
    collector = SummaryCollector(folder, keep_default_action=False, collect_landscape=settings)
    with collector.watch(network, optimizer=optimizer) as watched:
        for step in range(STEPS[-1]):
            rows = slice(step % 4 * 64, step % 4 * 64 + 64)
            optimizer.zero_grad()
            loss = loss_function(network(images[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            watched.step(loss)
    return folder


@pytest.fixture(scope="module")
def found(run):
    return SummaryLandscape(run).gen_curvature(callback_fn, keep_vectors=True, **QUIET)


def dense_span(factors, names_and_shapes, leading):
    """The leading eigenvectors of the whole block-diagonal matrix, all weights side by side."""
    blocks = {layer.weight: np.kron(layer.g[0], layer.a[0]) * layer.positions for layer in factors}
    sizes = [int(np.prod(shape)) for _, shape in names_and_shapes]
    whole = np.zeros((sum(sizes),) * 2)
    start = 0
    for (name, _), size in zip(names_and_shapes, sizes, strict=True):
        if name in blocks:
            whole[start : start + size, start : start + size] = blocks[name]
        start += size
    return np.linalg.eigh(whole)[1][:, -leading:]


@pytest.mark.parametrize("leading", [1, 4, 20])
def test_the_span_is_that_of_dense_kronecker_products(leading):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    optimizer = thor(network, 0.1, 0.1, 0.9)
    optimizer.keep_factors()
    nn.functional.cross_entropy(network(torch.randn(40, 4).double()), torch.randint(0, 3, (40,))).backward()
    optimizer.step()
    shapes = [(name, tuple(value.shape)) for name, value in network.named_parameters()]
    random = np.random.default_rng(0)
    directions = [{name: random.normal(size=shape) for name, shape in shapes} for _ in range(5)]
    flat = np.stack([np.concatenate([part.ravel() for part in direction.values()]) for direction in directions])
    span = dense_span(optimizer.kept_factors(), shapes, leading)
    expected = np.linalg.norm(flat @ span, axis=1)
    np.testing.assert_allclose(share_seen(directions, optimizer.kept_factors(), leading), expected, rtol=1e-8)


def test_a_run_on_digits_ends_in_the_column(run, found):
    shares = found.share_seen_by_optimizer
    assert found.number.tolist() == STEPS
    assert shares.shape == (4, 3)
    # Before the first step there are no factors.
    assert np.isnan(shares[0]).all()
    assert ((shares[1:] > 0) & (shares[1:] < 1)).all()
    shapes = [(name, tuple(value.shape)) for name, value in callback_fn()[1].named_parameters()]
    for row, number in list(enumerate(STEPS))[1:]:
        span = dense_span(RunDirectory(run).factors(number), shapes, LEADING)
        vectors = np.stack(
            [np.concatenate([part.ravel() for part in vector.values()]) for vector in found.vectors(number)]
        )
        np.testing.assert_allclose(shares[row], np.linalg.norm(vectors @ span, axis=1), rtol=1e-4)
    # What THOR sees is more of them than of random directions.
    by_chance = np.sqrt(LEADING / found.weights)
    assert shares[1:].mean() > 1.5 * by_chance


def test_the_file_and_its_facts_have_it(found, tmp_path):
    loaded = Curvature.load(found.path)
    np.testing.assert_array_equal(loaded.share_seen_by_optimizer, found.share_seen_by_optimizer)
    listed = ", ".join(f"{share:.2f}" for share in found.share_seen_by_optimizer[3])
    assert f"shares of their vectors that the optimizer sees {listed}" in curvature_text(loaded)
    facts = curvature_json(loaded)["share_seen_by_optimizer"]
    assert facts[0] == [None] * 3
    assert facts[3] == pytest.approx(found.share_seen_by_optimizer[3].tolist())
    copied = Curvature.load(found.save(tmp_path / "copy.h5"))
    np.testing.assert_array_equal(copied.share_seen_by_optimizer, found.share_seen_by_optimizer)


def test_vectors_are_kept_only_where_asked_for_and_a_later_call_adds_nothing(run, found, tmp_path):
    alone = SummaryLandscape(run).gen_curvature(callback_fn, [12], output=tmp_path, **QUIET)
    np.testing.assert_allclose(alone.share_seen_by_optimizer[0], found.share_seen_by_optimizer[3], rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["curvature_12.h5"]
    again = SummaryLandscape(run).gen_curvature(callback_fn, [12], output=tmp_path, **QUIET)
    assert again.report.measured == 0


@pytest.mark.slow
def test_one_set_of_weights_with_a_file_of_factors(run, found, tmp_path):
    (beside,) = (run / "ckpt_dir").glob("*_12_step_factors.safetensors")
    (weights,) = (run / "ckpt_dir").glob("*_12_step.safetensors")
    output = tmp_path / "one.h5"
    without = measure_curvature(weights, callback_fn, output=output, **QUIET)
    assert np.isnan(without.share_seen_by_optimizer).all()
    given = measure_curvature(weights, callback_fn, output=output, factors=beside, **QUIET)
    np.testing.assert_allclose(given.share_seen_by_optimizer[0], found.share_seen_by_optimizer[3], rtol=1e-3)
    other = RunDirectory(run).factors(12)[:1]
    with pytest.raises(PlaneError, match="the factors are of another network than Sequential"):
        measure_curvature(
            nn.Sequential(nn.Linear(3, 2)),
            lambda: (
                nn.CrossEntropyLoss(),
                nn.Sequential(nn.Linear(3, 2)),
                (torch.rand(9, 3), torch.ones(9).long()),
                {},
            ),
            factors=other,
            **QUIET,
        )


def test_a_run_without_factors_has_no_column(run, tmp_path):
    content = json.loads((run / "ckpt_dir/train_metadata.json").read_text())
    del content["factors"]
    folder = tmp_path / "run/ckpt_dir"
    folder.mkdir(parents=True)
    for path in (run / "ckpt_dir").glob("*_step.safetensors"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "train_metadata.json").write_text(json.dumps(content))
    landscapes = SummaryLandscape(tmp_path / "run")
    curvature = landscapes.gen_curvature(callback_fn, [12], **QUIET)
    assert np.isnan(curvature.share_seen_by_optimizer).all()
    assert "optimizer" not in curvature_text(curvature)
    text = re.escape('has no factors of the optimizer with step 12, which directions="factors" needs')
    with pytest.raises(RunDirectoryError, match=text):
        landscapes.gen_landscapes_with_multi_process(callback_fn, device_ids=[0], directions="factors", progress=False)


def test_the_command_draws_the_plane_of_factors(run, tmp_path, monkeypatch):
    (tmp_path / "digits_case.py").write_text(f"import sys\nsys.path.insert(0, {HERE!r})\n{CALLBACK}")
    monkeypatch.chdir(tmp_path)
    options = ["--directions", "factors", "--which", "top,third", "--no-train", "-o", "out", "--no-progress"]
    command = ["run", str(run), "--function", "digits_case:callback_fn", "--devices", "0", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    landscape = Landscape.load("out/landscape_12_factors_top_third.h5")
    assert landscape.attributes["decomposition"] == "factors"
    assert landscape.origin.number == 12
    plane = factor_plane(callback_fn()[1], RunDirectory(run).factors(12), which=("top", "third"))
    assert landscape.directions.eigenvalues.tolist() == pytest.approx(list(plane.curvature.eigenvalues))
    assert "optimizer's curvature: 1st" in summary_text(landscape)
    result = CliRunner().invoke(app, [*command, "--which", "bottom"])
    assert 'must not have "bottom" along factors' in str(result.exception)
