"""The README's code runs as it stands there, its links lead somewhere, and it stays short."""

import re

import pytest
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

README = ROOT / "README.md"
LONGEST = 700
# Its examples train and measure: on a busy machine minutes.
pytestmark = [pytest.mark.room("README.md", "collectors", "workers", "landscape"), pytest.mark.timeout(600)]


def blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(code, folder):
    # Not named like a module that others import.
    script = folder / "readme_example.py"
    script.write_text(code)
    run_python("-W", "error::UserWarning", script, cwd=folder, patience=PATIENCE * 8)  # trains, compiles, measures
    assert sorted(path.name for path in (folder / "run").glob("*.h5")) == [
        "landscape_0-20_pca.h5",
        "landscape_20_random.h5",
    ]


@pytest.mark.slow
def test_the_six_lines(tmp_path):
    six, _ = blocks()
    assert len([line for line in six.splitlines() if line]) == 6
    run(six, tmp_path)
    assert (tmp_path / "surface.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_loop_of_your_own(tmp_path):
    _, own = blocks()
    run(own, tmp_path)
    assert (tmp_path / "landscape.png").stat().st_size > 10_000


def test_it_is_short():
    assert len(README.read_text().split()) < LONGEST


def test_the_files_and_headings_that_the_readme_names_exist():
    named = re.findall(r"\]\(([^):]+)\)", README.read_text())
    assert len(named) > 20
    for name in named:
        path, _, heading = name.partition("#")
        assert (README.parent / path).exists(), name
        if heading:
            text = (README.parent / path).read_text()
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert heading in {title.lower().replace(" ", "-") for title in titles}, name
