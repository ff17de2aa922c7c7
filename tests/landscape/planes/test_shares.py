"""No share of the path's variance is written as less or more than it is, wherever it is shown."""

import json
import re

import numpy as np
import pytest
from figure_cases import build
from hypothesis import given
from hypothesis import strategies as st

from landscape import Landscape, evaluate, pca_plane
from landscape.drawing.texts import axis_label, short_axis_label
from landscape.facts import explained_variance_text, page_facts, summary_text
from landscape.figures import plot_contour
from landscape.grid.data import DirectionsData
from landscape.interactive import save_page
from landscape.planes.pca import is_almost_nothing, percentages


def explaining(*ratio):
    data = build()
    data.directions = DirectionsData(np.ones(2), np.array(ratio), 0.0)
    return Landscape(data)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((0.632, 0.214), "63.2 % + 21.4 %, 84.6 % in all"),
        ((0.75, 0.25), "75.0 % + 25.0 %, 100.0 % in all"),
        ((0.999998, 0.000002), "99.9998 % + 0.0002 %, 100.0000 % in all"),
        ((0.99, 0.00999), "99.000 % + 0.999 %, 99.999 % in all"),
        ((0.5, 1e-9), "50.0000000 % + 0.0000001 %, 50.0000001 % in all"),
        ((1.0, 0.0), "100.0 % + 0.0 %, 100.0 % in all"),
    ],
)
def test_every_picture_and_text_has_enough_digits(ratio, text):
    landscape = explaining(*ratio)
    first, second = percentages(ratio)
    small = ", almost nothing" if ratio[1] < 1e-3 else ""
    assert explained_variance_text(landscape) == text
    assert re.search(rf"^explained variance +{re.escape(text)}$", summary_text(landscape), re.MULTILINE)
    assert ["explained variance", text] in page_facts(landscape)
    assert axis_label(landscape, 0) == f"first principal direction (explained variance {first})"
    assert axis_label(landscape, 1) == f"second principal direction (explained variance {second}{small})"
    assert short_axis_label(landscape, 1) == f"PC 2 ({second} of variance{small})"
    drawn = " ".join(plot_contour(landscape).get_ylabel().split())
    assert f"{second} of variance{small})" in drawn or f"variance {second}{small})" in drawn


@given(st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_nothing_reads_as_none_or_all_without_being_it(shares):
    texts = percentages(shares)
    assert len({len(text.partition(".")[2]) for text in texts}) == 1
    for share, text in zip(shares, texts, strict=True):
        shown = float(text.removesuffix(" %"))
        if 1e-12 <= share <= 1 - 1e-12:
            assert 0 < shown < 100
        assert shown == pytest.approx(100 * share, abs=0.05000001)


def test_broken_values_are_still_written():
    assert percentages([np.nan, np.inf, -1.0, 2.0]) == ["nan %", "inf %", "-100.0 %", "200.0 %"]
    assert not is_almost_nothing([0.5])
    assert not is_almost_nothing([np.nan, np.nan])


def test_a_nearly_straight_path_says_so_in_the_file_and_in_every_view(tmp_path):
    from examples import batch_norm

    network = batch_norm()[1]
    generator = np.random.default_rng(0)
    last = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    course, across = ({name: generator.standard_normal(a.shape) for name, a in last.items()} for _ in range(2))

    def at(step, sideways):
        return {
            name: array + (0.01 * step * course[name] + 0.01 * sideways * across[name]).astype(array.dtype)
            if array.dtype.kind == "f" and "running" not in name
            else array
            for name, array in last.items()
        }

    checkpoints = [at(3, 0), at(2, 0.004), at(1, -0.003), at(0, 0)]
    with pytest.warns(UserWarning, match="the path is nearly straight"):
        plane = pca_plane(checkpoints, network=network)
    landscape = evaluate(
        plane, batch_norm, size=3, num_samples=16, device_ids=[0], progress=False, output=tmp_path / "a.h5"
    )
    (note,) = [note for note in Landscape.load(landscape.path).attributes["notes"] if "straight" in note]
    assert "100.0 %" not in explained_variance_text(landscape).split(" = ")[0]
    assert ", almost nothing" in axis_label(landscape, 1)
    assert note in summary_text(landscape)
    save_page(landscape, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert json.dumps(note)[1:-1] in page
    assert f"explained variance {percentages(landscape.explained_variance_ratio)[1]}, almost nothing" in page
