"""A surface in lower precision is another experiment than one in float32, and every picture of it says so."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from digits_networks import PLAN, build, measure, train

from landscape import Landscape, MeasurementPlan, SummaryLandscape, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.facts import summary_text
from landscape.figures import plot_contour, plot_difference, plot_multiples, plot_profile, plot_surface
from landscape.interactive.content import landscape_content
from landscape.interactive.notebook import notebook_figure
from landscape.planes import random_line

GRID = np.linspace(-1, 1, 5).tolist()
NOTE = "measured in bfloat16"


@pytest.fixture(scope="module")
def plane():
    return random_plane(train(build(), epochs=2), seed=0)


@pytest.fixture(scope="module")
def pair(plane, tmp_path_factory):
    """The same plane in float32 and in bfloat16, with their files."""
    folder = tmp_path_factory.mktemp("precision")
    return tuple(
        measure(plane, GRID, output=folder / f"{precision}.h5", precision=precision)
        for precision in ("float32", "bfloat16")
    )


def test_the_file_states_it_and_one_in_float32_is_as_before(pair):
    full, low = (Landscape.load(item.path) for item in pair)
    assert "precision" not in full.attributes["identity"]
    assert low.attributes["identity"] == {**full.attributes["identity"], "precision": "bfloat16"}
    plans = [item.attributes["measurement_plan"] for item in (full, low)]
    assert [plan["precision"] for plan in plans] == ["float32", "bfloat16"]
    assert MeasurementPlan.from_json(plans[1]).precision == "bfloat16"
    gaps = np.abs(low.loss / full.loss - 1)
    assert (gaps > 0).all()
    assert gaps.max() < 2**-6
    assert low.origin.metrics["loss"] != full.origin.metrics["loss"]


@pytest.mark.slow
@pytest.mark.parametrize(("held", "asked"), [(0, "bfloat16"), (1, "float32")])
def test_a_file_of_the_other_precision_is_refused_and_left(plane, pair, held, asked):
    path, other = pair[held].path, ("float32", "bfloat16")[held]
    before, match = path.read_bytes(), f'differ:\n  precision: the file has "{other}", this run "{asked}"\n.*overwrite'
    # Nor does the plan that such a file keeps stand in the way of this answer.
    for plan in (PLAN, None):
        with pytest.raises(LandscapeIdentityError, match=match):
            measure(plane, GRID, output=path, precision=asked, plan=plan)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_an_interrupted_one_is_continued(plane, pair, tmp_path):
    path = tmp_path / "continued.h5"
    with pytest.warns(UserWarning, match="budget"):
        measure(plane, GRID, output=path, precision="bfloat16", budget=1e-6, plan=pair[1].path)
    found = measure(plane, GRID, output=path, precision="bfloat16")
    assert found.complete
    assert found.loss.tobytes() == pair[1].loss.tobytes()
    assert found.attributes["notes"] == []


def test_a_plan_of_a_lower_precision_is_used_in_that_one_alone(plane, pair):
    with pytest.raises(ValueError, match=r'^plan was made for precision="bfloat16", but precision is "float32"\. Pass'):
        measure(plane, GRID, plan=pair[1].path)
    found = measure(plane, GRID, plan=pair[0].path, precision="bfloat16")
    assert found.attributes["measurement_plan"]["precision"] == "bfloat16"
    assert found.loss.tobytes() == pair[1].loss.tobytes()


def test_info_says_it(pair):
    full, low = (summary_text(Landscape.load(item.path)) for item in pair)
    rows = dict(line.split("  ", 1) for line in low.splitlines())
    assert rows["precision"].strip() == (
        "bfloat16: the network computes with two to three digits, and loss and metrics in float32 from its outputs, so "
        "small differences between points are rounding"
    )
    assert rows["measured in"].strip() == (
        "batches of 256 samples, 1 thread per worker, computed in bfloat16, not compiled"
    )
    assert not [line for line in full.splitlines() if line.startswith("precision") or "in bfloat16" in line]


@pytest.mark.slow
def test_every_picture_says_it(pair, plane):
    full, low = pair
    line = measure(random_line(build(), seed=0), GRID, precision="bfloat16")
    for axes in (plot_contour(low), plot_surface(low), plot_profile(line), plot_contour(low, style="paper")):
        assert NOTE in axes.get_title().split("\n")
    assert [NOTE in axes.get_title() for axes in plot_multiples([full, low])] == [False, True]
    assert "measured in float32 and bfloat16" in plot_difference(full, low).get_title()
    assert plot_difference(low, low).get_title().count(NOTE) == 1
    assert "measured in" not in plot_contour(full).get_title() + plot_difference(full, full).get_title()
    plt.close("all")
    contents = [landscape_content(item, "one") for item in pair]
    assert [content["note"].endswith(f"; {NOTE}") for content in contents] == [False, True]
    assert any(name == "precision" for name, _ in contents[1]["facts"])
    assert [repr(item).endswith(f"; {NOTE})") for item in pair] == [False, True]
    assert NOTE in json.dumps(notebook_figure(low), default=repr)
    assert NOTE not in json.dumps(notebook_figure(full), default=repr)


@pytest.mark.slow
def test_a_run_in_lower_precision(trained, tmp_path):
    from examples import batch_norm

    run = SummaryLandscape(trained)
    settings = {"landscape_size": 4, "create_landscape": {"train": False, "result": True}}
    how = {"device_ids": [0], "output": tmp_path, "progress": False, "plan": PLAN}
    (found,) = run.gen_landscapes_with_multi_process(batch_norm, settings, precision="bfloat16", **how)
    assert found.attributes["identity"]["precision"] == "bfloat16"
    with pytest.raises(ValueError, match=r'^precision="tf32" needs an NVIDIA GPU, but the network is measured on cpu'):
        run.gen_landscapes_with_multi_process(batch_norm, settings, precision="tf32", overwrite=True, **how)
    with pytest.raises(LandscapeIdentityError, match='precision: the file has "bfloat16", this run "float32"'):
        run.gen_landscapes_with_multi_process(batch_norm, settings, **how)
