"""``landscape curvature``: what Python measures, from what is typed."""

import json
import sys

import numpy as np
import pytest
from command_line import invoke
from small_curvature import train_small

from landscape import Curvature


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("curvature") / "run")


@pytest.fixture(autouse=True)
def inside(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))


def measure(run, *arguments):
    return invoke("curvature", run, "--function", "small_curvature:small", "--devices", 0, "--quiet", *arguments)


def test_it_measures_what_is_typed(run):
    said = measure(
        run, "--top", 2, "--bottom", 1, "--trace", 3, "--density", "2x5", "--numbers", "1-2", "--samples", 32,
        "--tolerance", 0.01, "--max-products", 45, "--seed", 3, "--keep-vectors", "--name", "sharp", "--output", "out",
    )  # fmt: skip
    found = Curvature.load("out/sharp_1-2.h5")
    assert found.number.tolist() == [1, 2]
    assert found.eigenvalues.shape == (2, 3)
    assert found.density_nodes.shape == (2, 2, 5)
    assert np.isfinite(found.trace).all()
    expected = {
        "matrix": "hessian", "num_samples": 32, "tolerance": 0.01, "max_products": 45, "seed": 3, "trace_probes": 3,
        "function": "small_curvature:small", "run_directory": "../run",
    }  # fmt: skip
    assert expected.items() <= found.attributes.items()
    assert len(found.vectors(1)) == 3
    assert "epoch 2" in said.output
    facts = json.loads(invoke("info", "out/sharp_1-2.h5", "--json").output)
    assert facts["eigenvalues"] == found.eigenvalues.tolist()
    told = invoke("info", "out/sharp_1-2.h5").output.splitlines()[1:]
    # A file has its versions sorted by name.
    assert [line for line in told if "versions" not in line] == [
        line for line in said.output.splitlines()[1:] if "versions" not in line
    ]


def test_what_cannot_be_typed(run):
    expected = r"^--density must be random starts x products of each, such as 4x40, but got '4'\.$"
    with pytest.raises(ValueError, match=expected):
        measure(run, "--density", "4")
    with pytest.raises(ValueError, match="--numbers must be whole numbers"):
        measure(run, "--numbers", "a")
