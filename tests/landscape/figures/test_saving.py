import io
import xml.etree.ElementTree

import pytest
from figure_cases import build
from matplotlib.figure import Figure
from places import ROOT
from scripts import run_script

from landscape.figures import plot_contour, plot_surface, save_figure

DRAWINGS = [plot_contour, plot_surface]


class TestSaving:
    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["PNG", "pdf", "svg"])
    @pytest.mark.parametrize("plot", DRAWINGS)
    def test_the_same_picture_gives_the_same_bytes(self, tmp_path, suffix, plot):
        files = [tmp_path / f"{index}.{suffix}" for index in range(2)]
        for file in files:
            save_figure(plot(build()), file)
        assert files[0].read_bytes() == files[1].read_bytes()
        start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix.lower()]
        assert files[0].read_bytes().startswith(start)
        if suffix == "svg":
            xml.etree.ElementTree.parse(files[0])
        assert len(list(tmp_path.iterdir())) == 2

    def test_figures_subfigures_and_streams(self, tmp_path):
        figure = Figure()
        ax = figure.subfigures(1, 2)[1].subplots()
        pictures = []
        for item in (figure, ax.figure, ax):
            stream = io.BytesIO()
            save_figure(item, stream)
            pictures.append(stream.getvalue())
        assert pictures[0] == pictures[1] == pictures[2]

    def test_other_names_and_things(self, tmp_path):
        ax = Figure().add_subplot()
        other = r"path must be a name that ends in \.png, \.pdf, \.svg or \.pgf"
        nowhere = "path must lie in a directory that exists, but .*none does not"
        for figure, path, error, match in (
            *((ax, tmp_path / name, ValueError, other) for name in ("a.jpg", "a", "a.png.txt")),
            ("picture", tmp_path / "a.png", TypeError, "figure must be a matplotlib figure or axes"),
            (ax, 3, TypeError, "path must be a path or a binary stream"),
            (ax, tmp_path / "none" / "a.png", NotADirectoryError, nowhere),
        ):
            with pytest.raises(error, match=match):
                save_figure(figure, path)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_pyplot_is_never_touched():
    script = """
import sys, matplotlib
names = set(matplotlib.rcParams) - {"backend"}  # asking for the backend imports pyplot
before = {name: matplotlib.rcParams[name] for name in names}
sys.path.insert(0, "tests/support")
import io
from landscape.figures import plot_contour, plot_surface, save_figure
from landscape.landscape import Landscape
from figure_cases import build
for plot in (plot_contour, plot_surface):
    save_figure(plot(Landscape(build())), io.BytesIO())
assert "matplotlib.pyplot" not in sys.modules
assert {name: matplotlib.rcParams[name] for name in names} == before
"""
    run_script(script, cwd=ROOT)
