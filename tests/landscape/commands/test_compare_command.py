"""``landscape compare``: what Python measures, from what is typed; and what looks at its file."""

import json
import re
import sys

import pytest
from command_line import command, invoke
from small_curvature import train_small

from landscape import Comparison, Landscape


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    for number in range(6):
        train_small(folder / f"run_{number}", epochs=2 + number)
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))


def measure(*arguments):
    return invoke("compare", *arguments, "--function", "small_curvature:small", "--devices", 0, "--quiet")


@pytest.fixture(scope="module")
def said(folder):
    """What the command says that measures ``compare.h5``."""
    return command(
        "compare", "short=run_0,run_1,run_2", "long=run_3,run_4,run_5", "--directions", 4, "--points", 5,
        "--radius", 1.5, "--normalization", "layer", "--seed", 4, "--confidence", 0.9, "--samples", 20,
        "-o", "compare.h5", "--rise", 0.01, "--function", "small_curvature:small", "--devices", 0, "--quiet",
        folder=folder,
    )  # fmt: skip


def test_it_measures_what_is_typed(said):
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


def test_pictures_show_it(said):
    invoke("plot", "compare.h5", "-o", "picture.png", "--dpi", 40)
    invoke("plot", "compare.h5", "-o", "dark.svg", "--kind", "comparison", "--theme", "dark", "--inches", "5x4")
    with pytest.raises(Exception, match=r"Comparison\.load"):
        Landscape.load("compare.h5")


def test_pairs():
    said = measure("a=run_0,run_1,run_2", "b=run_3,run_4,run_5", "--paired", "--directions", 4)
    assert "paired t" in said.output


def test_what_is_typed_wrong():
    for typed, text in (
        (("short",), "RECIPE=NETWORK,NETWORK must be a name and its networks"),
        (("a=run_0", "a=run_1"), "must have different names, but got 'a' twice"),
        (("a=run_0",), "RECIPE=NETWORK,NETWORK must be at least two"),
        (("a=run_0@1", "b=run_1"), "but got 'run_0@1'. Give the checkpoint's file, which is in run_0/ckpt_dir."),
    ):
        with pytest.raises(Exception, match=re.escape(text)):
            measure(*typed)


def test_networks_that_are_the_same_are_called_as_they_were_typed():
    texts = ["small=run_0", "large=run_1,run_0"]
    with pytest.raises(Exception, match="'small=run_0' and 'large=run_0' are the same weights"):
        measure(*texts)
