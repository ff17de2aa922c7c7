"""Pictures for LaTeX, by a real LaTeX where one is installed."""

import shutil
import subprocess

import pytest
from figure_cases import build
from waiting import PATIENCE

from landscape.figures import plot_contour, plot_heatmap, save_figure

DOCUMENT = r"""\documentclass{article}
\usepackage{pgf}
\begin{document}
\input{picture.pgf}
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX is installed here")
@pytest.mark.parametrize("plot", [plot_contour, plot_heatmap])
def test_a_document_inputs_what_was_saved(plot, tmp_path):
    save_figure(plot(build()), tmp_path / "picture.pgf")
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"picture.pgf"} == {name for name in names if name.startswith("picture-img")}
    first = {name: (tmp_path / name).read_bytes() for name in names}
    save_figure(plot(build()), tmp_path / "picture.pgf")
    assert first == {name: (tmp_path / name).read_bytes() for name in names}
    (tmp_path / "document.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "document.pdf").stat().st_size > 20_000


def test_without_latex_an_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"must end in \.png, \.pdf or \.svg where there is no LaTeX.*install xelatex"):
        save_figure(plot_contour(build()), tmp_path / "picture.pgf")
    assert list(tmp_path.iterdir()) == []
