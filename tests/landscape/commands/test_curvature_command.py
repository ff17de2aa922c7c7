"""``landscape curvature`` and ``landscape compare``: what Python measures, from what is typed."""

import json
import re
import sys

import numpy as np
import pytest
from command_line import command, invoke
from small_curvature import train_small

from landscape import Comparison, Curvature

QUICK = ("--function", "small_curvature:small", "--devices", 0, "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for number in range(6):
        train_small(folder / f"run_{number}", epochs=2 + number)
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_curvature_is_what_is_typed():
    said = invoke(
        "curvature", "run_1", *QUICK, "--top", 2, "--bottom", 1, "--trace", 3, "--density", "2x5", "--numbers", "1-2",
        "--samples", 32, "--tolerance", 0.01, "--max-products", 45, "--seed", 3, "--keep-vectors", "--name", "sharp",
        "--output", "out",
    )  # fmt: skip
    found = Curvature.load("out/sharp_1-2.h5")
    assert found.number.tolist() == [1, 2]
    assert found.eigenvalues.shape == (2, 3)
    assert found.density_nodes.shape == (2, 2, 5)
    assert np.isfinite(found.trace).all()
    expected = {
        "matrix": "hessian", "num_samples": 32, "tolerance": 0.01, "max_products": 45, "seed": 3, "trace_probes": 3,
        "function": "small_curvature:small", "run_directory": "../run_1",
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


def test_what_cannot_be_typed_of_a_curvature():
    expected = r"^--density must be probes x products of each, such as 4x40, but got '4'\.$"
    with pytest.raises(ValueError, match=expected):
        invoke("curvature", "run_1", *QUICK, "--density", "4")
    with pytest.raises(ValueError, match="--numbers must be whole numbers"):
        invoke("curvature", "run_1", *QUICK, "--numbers", "a")


@pytest.fixture(scope="module")
def said(folder):
    """What the command says that measures ``compare.h5``."""
    return command(
        "compare", "short=run_0,run_1,run_2", "long=run_3,run_4,run_5", "--directions", 4, "--points", 5,
        "--radius", 1.5, "--normalization", "layer", "--seed", 4, "--confidence", 0.9, "--samples", 20,
        "-o", "compare.h5", "--rise", 0.01, *QUICK, folder=folder,
    )  # fmt: skip


def test_a_comparison_is_what_is_typed(said):
    found = Comparison.load("compare.h5")
    assert found.loss.shape == (6, 4, 5)
    assert found.name == ("run_0", "run_1", "run_2", "run_3", "run_4", "run_5")
    expected = {
        "num_samples": 20, "radius": 1.5, "normalization": "layer", "seed": 4, "confidence": 0.9, "rise": 0.01,
        "function": "small_curvature:small",
    }  # fmt: skip
    assert expected.items() <= found.attributes.items()
    assert (said.stdout.strip(), said.stderr) == (found.summary(), "")
    assert "90 %" in said.stdout
    facts = json.loads(invoke("info", "compare.h5", "--json").output)
    assert facts["kind"] == "comparison"
    assert [item["rise_at_radius"] for item in facts["networks"]] == found.values().tolist()
    assert facts["answers"]["rise_at_radius"][0]["difference"] == found.table()[0].difference
    assert found.summary() in invoke("info", "compare.h5").output


def test_pairs():
    said = invoke(
        "compare", "a=run_0,run_1,run_2", "b=run_3,run_4,run_5", "--paired", "--directions", 4, "--trace-lines", 2,
        "-o", "pairs.h5", *QUICK,
    )  # fmt: skip
    assert "paired t" in said.output
    both = [Comparison.load("pairs.h5").summary(measure) for measure in ("rise_at_radius", "trace")]
    for text in (said.output, invoke("info", "pairs.h5").output):
        assert "\n\n".join(both) in text


def test_recipes_that_are_typed_wrong():
    for typed, text in (
        (("short",), "RECIPE=NETWORK,NETWORK must be a name and its networks"),
        (("a=run_0", "a=run_1"), "must have different names, but got 'a' twice"),
        (("a=run_0",), "RECIPE=NETWORK,NETWORK must be at least two"),
        (("a=run_0@1", "b=run_1"), "but got 'run_0@1'. Give the checkpoint's file, which is in run_0/ckpt_dir."),
    ):
        with pytest.raises(Exception, match=re.escape(text)):
            invoke("compare", *typed, *QUICK)


def test_networks_that_are_the_same_are_called_as_they_were_typed():
    with pytest.raises(Exception, match="'small=run_0' and 'large=run_0' are the same weights"):
        invoke("compare", "small=run_0", "large=run_1,run_0", *QUICK)
