"""The page as text: safe whatever the file says, the same every time, and refused with reasons."""

import base64
import json
import re
import sys

import numpy as np
import pytest
from command_line import command
from landscape_examples import HEADER, write_landscape
from who_is_there import with_ends, with_networks

from landscape import Landscape
from landscape.interactive import page_html, save_page
from landscape.interactive.content import landscape_content

plotly = pytest.importorskip("plotly")


def content_of(text):
    (found,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text, re.DOTALL)
    assert not re.search("[<>&\u2028\u2029]", found)
    return json.loads(found)


class TestText:
    def test_nothing_in_a_file_ends_the_script(self, example, metric):
        landscape = Landscape(example(title="</script><script>alert(1)</script>\u2028{{content}}"))
        text = page_html(landscape)
        assert text.count("<script") == 3
        (item,) = content_of(text)["landscapes"]
        assert item["title"] == "</script><script>alert(1)</script>\u2028{{content}}"
        assert metric in item["metrics"]
        assert "<title>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;\u2028{{content}}</title>" in text

    def test_numbers_arrive_to_the_last_bit(self, example):
        data = example()
        data.metrics["loss"][0, :4] = [np.nan, np.inf, -np.inf, np.nextafter(1, 2)]
        (item,) = content_of(page_html(Landscape(data)))["landscapes"]
        read = np.frombuffer(base64.b64decode(item["metrics"]["loss"]["bdata"]), "<f8").reshape(data.shape)
        np.testing.assert_array_equal(read, data.metrics["loss"])

    def test_is_the_same_every_time(self, example):
        landscape = Landscape(example())
        assert page_html(landscape) == page_html(landscape)

    def test_facts(self, example):
        data = example(
            num_samples=512, samples="random", versions={"torch": "2.13", "numpy": "2.4"}, notes=["no standard error"],
            measurement_plan={"batch_size": 64, "threads": 2},
        )  # fmt: skip
        data.errors = {f"grid/0,{number}": f"{HEADER}ValueError: {number}" for number in range(8)}
        rows = landscape_content(Landscape(data), "a")["facts"]
        facts = dict(rows)
        assert facts["seeds"] == "samples' seed 7"
        assert facts["samples"] == "512 (random)"
        assert facts["versions"] == "torch 2.13, numpy 2.4"
        assert facts["note"] == "no standard error"
        assert facts["measured in"].startswith("batches of 64 samples, 2 threads per worker")
        assert facts["largest distance of the path from the plane"].startswith("0.3 ")
        assert [text for name, text in rows if name == "failed"][-2:] == ["grid/0,4: ValueError: 4", "... and 3 more"]

    def test_an_accuracy_is_linear_unless_asked_for_otherwise(self, example):
        data = example()
        data.metrics["accuracy"] = np.geomspace(0.005, 0.95, data.status.size).reshape(data.shape)
        scales = landscape_content(Landscape(data), "a")["scales"]
        assert [scales["accuracy"][asked]["kind"] for asked in ("auto", "log", "linear")] == ["linear", "log", "linear"]
        assert scales["loss"]["auto"]["kind"] == "log"

    def test_dollar_signs_of_names_stay_as_they_are(self):
        content = landscape_content(Landscape(with_networks()), "a")
        assert content["axis_labels"] == ["from SGD to Adam $x_1$", "from SGD to average"]
        assert content["frames"]["equal"]["labels"][0] == "distance from SGD to Adam $x_1$"
        assert landscape_content(Landscape(with_ends()), "a")["axis_labels"] == ["from SGD to Adam $x_1$"]

    def test_names_tell_files_apart(self, example, tmp_path):
        landscapes = [Landscape(example())]
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            write_landscape(tmp_path / folder / "a.h5", example())
            landscapes.append(Landscape.load(tmp_path / folder / "a.h5"))
        names = [item["name"] for item in content_of(page_html(landscapes))["landscapes"]]
        assert names == ["landscape 1", "one/a.h5", "two/a.h5"]
        names = [item["name"] for item in content_of(page_html([landscapes[1], landscapes[1]]))["landscapes"]]
        assert names == ["one/a.h5 (1)", "one/a.h5 (2)"]


class TestRefused:
    @pytest.mark.parametrize(
        ("landscapes", "error", "message"),
        [
            ([], ValueError, "landscapes must be at least one landscape"),
            ("a.h5", TypeError, "landscapes must be a Landscape or a list of them, but got str"),
            ([3], TypeError, "landscapes must be a Landscape or a list of them, but got int"),
        ],
    )
    def test_no_landscape(self, tmp_path, landscapes, error, message):
        with pytest.raises(error, match=message):
            save_page(landscapes, tmp_path / "a.html")

    @pytest.mark.parametrize(
        ("name", "options", "error", "message"),
        [
            ("a.png", {}, ValueError, r"path must be a name that ends in \.html"),
            ("missing/a.html", {}, NotADirectoryError, "must lie in a directory that .*missing does not exist"),
            ("a.html", {"size": "tiny"}, ValueError, "size must be"),
        ],
    )
    def test_wrong_arguments(self, example, tmp_path, name, options, error, message):
        with pytest.raises(error, match=message):
            save_page(Landscape(example()), tmp_path / name, **options)

    def test_without_plotly(self, example, tmp_path, monkeypatch):
        from landscape.interactive import page

        monkeypatch.setitem(sys.modules, "plotly", None)
        monkeypatch.setitem(sys.modules, "plotly.offline", None)
        page._packed_script.cache_clear()
        with pytest.raises(ImportError, match=r"pip install 'summary-landscape\[interactive\]'"):
            save_page(Landscape(example()), tmp_path / "a.html")
        assert list(tmp_path.iterdir()) == []

    def test_a_full_or_forbidden_place_keeps_the_old_page(self, example, tmp_path):
        (tmp_path / "a.html").mkdir()
        with pytest.raises(OSError):
            save_page(Landscape(example()), tmp_path / "a.html")
        assert [item.name for item in tmp_path.iterdir()] == ["a.html"]


class TestSizes:
    @pytest.mark.slow
    def test_small_pages_share_a_script(self, example, tmp_path, open_address):
        for name in ("a.html", "b.html"):
            page = save_page(Landscape(example()), tmp_path / name, size="small")
        assert sorted(item.name for item in tmp_path.iterdir()) == ["a.html", "b.html", "plotly.min.js"]
        assert page.stat().st_size < 220_000
        opened = open_address(page.as_uri())
        assert opened.messages == []
        assert opened.requests == [page.as_uri(), (tmp_path / "plotly.min.js").as_uri()]

    def test_full_pages_are_one_file(self, example, tmp_path):
        page = save_page(Landscape(example()), tmp_path / "a.html")
        assert list(tmp_path.iterdir()) == [page]
        assert page.stat().st_size < 3_000_000


class TestView:
    def test_writes_and_opens(self, example, tmp_path, monkeypatch):
        import webbrowser

        opened = []
        monkeypatch.setattr(webbrowser, "open", opened.append)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        page = Landscape(example()).view()
        assert opened == [page.as_uri()]
        assert page.is_relative_to(tmp_path)
        assert Landscape(example()).view(tmp_path / "a.html", show=False) == tmp_path / "a.html"
        assert len(opened) == 1


class TestCommand:
    @pytest.mark.parametrize(
        ("typed", "said"),
        [
            (("no.h5", "-o", "a.html"), "error: landscape file no.h5 is damaged"),
            (("a.h5", "-o", "a.html", "--page", "tiny"), "--page must be"),
            (("a.h5", "-o", "missing/a.html"), "missing does not exist; create it"),
        ],
    )
    def test_what_makes_no_page(self, example, tmp_path, typed, said):
        (tmp_path / "no.h5").write_text("no HDF5")
        write_landscape(tmp_path / "a.h5", example())
        done = command("plot", *typed, folder=tmp_path, check=False)
        assert done.returncode == 1
        assert said in done.stderr
        assert not (tmp_path / "a.html").exists()
