"""The example of networks with and without skips: its numbers are right, and it runs to its page and goes on."""

import dataclasses
import os
import re
from importlib import import_module

import numpy as np
import pytest
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

from landscape import Landscape

FOLDER = ROOT / "docs" / "examples" / "flagship"
pytestmark = pytest.mark.room("docs/examples")
X = np.arange(-20, 21) / 20


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return import_module


def test_nothing_falls_and_nothing_bends_down_around_the_minimum_of_a_convex_function(example):
    roughness = example("roughness")
    assert roughness.share_falling_outwards(X, 3 + X**2 + 0.5 * X**4) == 0
    assert roughness.share_bending_down(3 + X**2 + 0.5 * X**4) == 0


def test_falls_are_counted_outwards_on_both_sides(example):
    roughness = example("roughness")
    assert roughness.share_falling_outwards(X, X) == 0.5
    assert roughness.share_falling_outwards(X, -np.abs(X)) == 1
    assert roughness.share_bending_down(-(X**2)) == 1
    waves = 1 - np.cos(4 * np.pi * X)
    assert roughness.share_falling_outwards(X, waves) == 0.5
    # A rising function of the loss falls where the loss does.
    assert roughness.share_falling_outwards(X, np.exp(30 * waves)) == 0.5


def test_what_is_not_finite_is_left_out_and_not_taken_for_smooth(example):
    roughness = example("roughness")
    loss = -np.abs(X)
    loss[[3, 30]] = np.nan, np.inf
    assert roughness.share_falling_outwards(X, loss) == 1
    assert np.isnan(roughness.share_falling_outwards(X, np.full(41, np.nan)))
    assert np.isnan(roughness.share_bending_down(np.full(41, np.nan)))


def test_an_even_number_of_points_would_miss_the_network(example):
    axis = example("experiment").axis_to_one(7)
    assert list(axis) == list(-axis[::-1])
    assert axis[3] == 0
    with pytest.raises(ValueError, match=r"size must be odd, .* but got 8"):
        example("experiment").axis_to_one(8)


def test_a_network_and_the_same_without_skips_have_the_same_weights(example):
    network = example("residual_networks").ResidualNetwork
    shapes = [
        {name: tuple(tensor.shape) for name, tensor in network(20, skips=skips).state_dict().items()}
        for skips in (False, True)
    ]
    assert shapes[0] == shapes[1]
    layers = [name for name, shape in shapes[0].items() if len(shape) > 1]
    assert len(layers) == 20
    with pytest.raises(ValueError, match=r"layers must be 6 n \+ 2, .* but got 21"):
        network(21, skips=True)


def numbers(example, *falling, minima=1):
    """Returns three seeds of each recipe, which differ in how much falls."""
    experiment, roughness = example("experiment"), example("roughness")
    return {
        recipe: [roughness.Roughness(0.1, 0.9, share, 0.2, minima, 2, 0.3, 10, 0) for share in shares]
        for recipe, shares in zip(experiment.recipes(experiment.Settings()), falling, strict=True)
    }


def test_an_answer_is_given_only_where_all_seeds_agree(example):
    low, middle, high = (0.0, 0.01, 0.02), (0.01, 0.02, 0.05), (0.2, 0.3, 0.4)
    answers = example("findings").answers
    chaos, first, second, third, fourth = answers(numbers(example, middle, low, high, low))
    assert "**no**, 0 of 3 planes" in chaos
    assert "**yes**, for each of 3 seeds (30.0% (20.0% to 40.0%) against 1.0% (0.0% to 2.0%))" in first
    assert "**yes**" in second
    assert "**no difference** beyond that of 3 seeds" in third
    assert "**no difference**" in fourth
    _, first, second, third, fourth = answers(numbers(example, high, low, middle, high))
    assert "**no**, the other way round" in first
    assert "**no**, the other way round" in second
    assert "**no**, it is rougher" in third
    assert "**no**, it is rougher" in fourth
    chaos, first, *_ = answers(numbers(example, low, low, middle, low, minima=4))
    assert "**yes**, 3 of 3 planes" in chaos
    assert "**not decided**, 3 seeds overlap" in first


def test_a_folder_goes_on_only_with_its_own_settings(example, tmp_path):
    experiment = example("experiment")
    recipe = experiment.Recipe(8, skips=False)
    folder = experiment.folder_of(tmp_path, recipe, 0)
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match=r"8_plain_seed0 was begun with other settings: \{\}, .* Remove the folder"):
        experiment.run_one(experiment.Settings(), recipe, 0, tmp_path)
    assert [file.name for file in folder.iterdir()] == ["settings.json"]


def test_a_page_of_some_seeds_says_that_it_is_not_finished(example):
    found = numbers(example, (0.0,), (0.0,), (0.3,), (0.0,))
    settings = dataclasses.replace(example("experiment").Settings(), seeds=1)
    text = example("findings").measured_text(settings, found, missing_seeds=2)
    assert text.startswith("**Not finished**: 2 seeds to come, `make flagship` goes on.")
    assert "4 networks, 1 seed of each recipe." in text
    assert "Not finished" not in example("findings").measured_text(settings, found)


def test_a_page_without_its_markers_is_refused(example, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no markers")
    with pytest.raises(ValueError, match=r"page.md must have the lines <!-- measured: begin -->"):
        example("findings").write_page(page, page, "text")
    assert page.read_text() == "no markers"


@pytest.mark.slow
@pytest.mark.timeout(600)  # it trains and measures networks, which takes half a minute, on a busy machine more
def test_it_runs_to_its_page_and_goes_on_where_it_stopped(example, tmp_path):
    command = ("-W", "error::UserWarning", FOLDER / "run.py", "--quick", "--output", tmp_path)
    run_python(*command, env={**os.environ, "MPLBACKEND": "Agg"}, patience=4 * PATIENCE)
    page = (tmp_path / "flagship.md").read_text()
    table = page.split("<!-- measured: begin -->")[1].split("<!-- measured: end -->")[0]
    assert len(re.findall(r"^\| .*\d.*\| .*\d.*\| .*\d.*\| .*\d.*\|$", table, re.MULTILINE)) >= 7
    assert "one seed decides nothing" in table
    for picture in re.findall(r"\]\((images/.*?)\)", table):
        assert (tmp_path / picture).stat().st_size > 10_000
    trained = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/run/ckpt_dir/*.safetensors")}
    losses = {file: Landscape.load(file).loss for file in tmp_path.glob("*/*.h5")}
    assert len(trained) >= 4
    assert len(losses) == 4 * 3
    (tmp_path / "8_plain_seed0" / "line_2.h5").unlink()
    # In this process, and without the pictures, which take longer than all else.
    settings, experiment, roughness = example("run").QUICK, example("experiment"), example("roughness")
    found = {}
    for recipe in experiment.recipes(settings):
        experiment.run_one(settings, recipe, 0, tmp_path)
        network = roughness.Surroundings.load(experiment.folder_of(tmp_path, recipe, 0), settings.lines)
        found[recipe] = [roughness.Roughness.of(network)]
    assert table == f"\n\n{example('findings').measured_text(settings, found)}\n\n"
    assert {file: file.stat().st_mtime_ns for file in trained} == trained
    for file, loss in losses.items():
        np.testing.assert_array_equal(Landscape.load(file).loss, loss)
