"""Pictures of comparisons: what is drawn is what was measured."""

import numpy as np
import pytest
from curvature_cases import build_curvature

from landscape.comparison.comparison import Comparison
from landscape.comparison.data import ComparisonData
from landscape.drawing.appearance import STYLES
from landscape.figures import plot_comparison, plot_sharpness, save_figure


def comparison(networks=4, recipes=("sgd", "adam"), steeper=1.5, directions=6):
    random = np.random.default_rng(0)
    t = np.linspace(-1, 1, 9)
    names = [recipe for recipe in recipes for _ in range(networks)]
    digests = [f"{number:064x}" for number in range(len(names))]
    attributes = {
        "radius": 1.0, "confidence": 0.95, "rise": 0.1, "normalization": "filter", "seed": 0, "num_samples": 1000,
        "directions": directions, "recipes": list(recipes), "paired": [],
    }  # fmt: skip
    axes = {"recipe": names, "name": list(map(str, range(len(names)))), "sha256": digests, "t": t}
    data = ComparisonData.empty(axes, {"direction": directions}, attributes)
    bends = 1 + 0.1 * random.standard_normal((len(names), directions)) + steeper * (np.array(names) != "sgd")[:, None]
    data.loss[:] = 0.2 + bends[:, :, None] * t**2
    data.status[:] = 1
    return Comparison(data)


def test_the_caption_has_recipes_intervals_and_the_answer():
    found = comparison()
    caption = found.caption()
    assert "of sgd (4 networks), adam (4 networks): the mean over 6 random directions of each" in caption.text
    bands = "Bands: 95 % intervals of the mean over networks and directions. Measured on 1,000 samples."
    assert caption.text.endswith(bands)
    (answer,) = found.table()
    assert f"{answer.difference:+.3g} ({answer.low:+.3g} to {answer.high:+.3g}, 95 %)" in caption.alt
    assert answer.verdict in caption.alt
    assert all(f"{item.recipe} {item.mean:.4g} ({item.low:.4g} to" in caption.alt for item in found.means())
    assert "Bands" not in comparison(networks=1).caption().text
    assert "intervals of the mean over networks. Measured" in comparison(directions=1).caption().text


def test_the_mean_and_its_band():
    found = comparison()
    ax = plot_comparison(found, theme="light")
    lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    means = {recipe: found.curves(recipe).mean(0) for recipe in found.recipes}
    assert lines["sgd (4 networks)"] == pytest.approx(means["sgd"])
    assert lines["adam (4 networks)"] == pytest.approx(means["adam"])
    first, second = ax.collections
    middle, low, high = found.band("sgd")
    assert first.get_datalim(ax.transData).y1 == pytest.approx(high.max())
    assert (low <= middle).all()
    assert second.get_datalim(ax.transData).y1 > first.get_datalim(ax.transData).y1
    assert high[-1] == pytest.approx(found.means()[0].high)
    notes = ["mean over 6 directions (filter), 1,000 samples", "band: 95 % interval of the mean"]
    assert ax.get_title().splitlines() == ["sgd is flatter", *notes]


def test_what_is_not_known_is_not_drawn():
    single = plot_comparison(comparison(networks=1))
    assert not single.collections
    assert "one network of each says nothing about the recipes" in single.get_title()
    assert len(plot_comparison(comparison(), networks=False).get_lines()) == 3
    assert "inconclusive" in plot_comparison(comparison(steeper=0.0)).get_title()
    many = plot_comparison(comparison(recipes=("sgd", "a", "b", "c", "d", "e")), title="mine")
    assert many.get_title().startswith("mine")


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_it_fits_the_page(style, tmp_path):
    ax = plot_comparison(comparison(), style=style, theme="dark")
    save_figure(ax, tmp_path / "comparison.png", dpi=60)
    width, height = ax.figure.get_size_inches() * ax.figure.dpi
    box = ax.get_tightbbox()
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height


@pytest.mark.parametrize("style", STYLES)
def test_distances_and_eigenvalues_have_their_unit_in_every_style(style):
    across = plot_comparison(comparison(), style=style).get_xlabel()
    assert " ".join(across.split()) == "distance from the network, in lengths of the direction"
    up = plot_sharpness(build_curvature(), style=style).get_ylabel()
    assert " ".join(up.split()).startswith("eigenvalue, in loss / distance²")


def test_options_that_are_wrong():
    wrong = {"colormap": "plot_comparison has no argument 'colormap'", "networks": "networks must be"}
    for option, text in wrong.items():
        with pytest.raises(TypeError, match=text):
            plot_comparison(comparison(), **{option: 1})
