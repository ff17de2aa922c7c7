"""Attributes that no file of ours has, null and half of a surrogate pair, in everything that shows a file."""

import json

import pytest
from landscape_examples import build, write_landscape

from landscape import Landscape
from landscape.errors import LandscapeIdentityError
from landscape.facts import sampling_text, summary_text
from landscape.interactive import save_page
from landscape.interactive.page import page_html
from landscape.interactive.watch import FileWatch
from landscape.record.checks import PointStatus
from landscape.record.identity import check_identity
from landscape.record.writer import lock_landscape
from landscape.summary_json import summary_json

pytest.importorskip("plotly")

NAMES = (
    "sampling", "notes", "intervals", "measurement_plan", "identity", "versions", "network", "title", "unit",
    "decomposition", "normalization", "num_samples", "imported", "directions_seed", "created",
)  # fmt: skip
# These are looked at when a file is written or read; a text is refused.
COMPUTED = ("sampling", "notes", "intervals", "measurement_plan", "directions_seed")
HALF = "\ud800"


def shown(path, folder):
    landscape = Landscape.load(path)
    texts = [repr(landscape), summary_text(landscape), page_html([landscape])]
    texts.append(sampling_text(landscape) or "-")
    texts.append(json.dumps(summary_json(landscape)))
    assert all(text.encode("utf-8") for text in texts)
    with pytest.raises(LandscapeIdentityError, match="holds another experiment"):
        check_identity(landscape.attributes.get("identity", {}), {"a": 1}, path)
    save_page(landscape, folder / "page.html", size="small")
    for name in ("a.npz", "a.csv", "a.nc"):
        landscape.export(folder / name, overwrite=True)
    # No known loss of the example is finite, and these need heights.
    for name in ("a.vts", "a.glb"):
        landscape.export(folder / name, metric="accuracy", overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [*((name, None) for name in NAMES), *((name, HALF) for name in NAMES if name not in COMPUTED)]
)
@pytest.mark.filterwarnings("ignore")
def test_is_shown_for_what_it_is(name, value, tmp_path):
    data = build()
    data.attributes[name] = value
    write_landscape(tmp_path / "a.h5", data)
    shown(tmp_path / "a.h5", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_is_watched(name, tmp_path):
    """The time left depends on the kind of sampling."""
    path = tmp_path / "a.h5"
    data = build()
    data.attributes[name] = None
    data.status[1:] = PointStatus.PENDING
    with lock_landscape(path):
        write_landscape(path, data)
        watch = FileWatch(path)
        # As if it had been written before, with nothing measured.
        watch._history.appendleft((0.0, 0))
        progress, content = watch.look()
    assert progress.phase == "measuring"
    assert content is not None


def test_a_file_whose_name_is_no_text(tmp_path):
    path = tmp_path / "l\udcff.h5"
    write_landscape(path, build())
    assert save_page(Landscape.load(path), tmp_path / "p\udcff.html", size="small").exists()
    text = page_html([], script="s.js", live={"version": ""}, heading=path.name)
    assert "<title>l?.h5" in text
