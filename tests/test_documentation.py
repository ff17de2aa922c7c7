"""Every code block of the documentation runs as it stands there, and the site builds without a warning."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from scripts import PATIENCE

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|console)(?: title=\"([^\"\n]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)

# Run with the real frameworks by tests/frameworks, and with a real Ray head by tests/cluster.
ELSEWHERE = {path.name for path in (DOCS / "trainers").glob("*.md")} | {
    "cluster.md",
    "trackers.md",
    "language_models.md",
}


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text())


def pages_with_code():
    return sorted(
        path.name for path in DOCS.rglob("*.md") if blocks(path.relative_to(DOCS)) and path.name not in ELSEWHERE
    )


def run(command, folder, **more):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False, **more
    )
    assert result.returncode == 0, f"{command}\n{result.stdout[-1500:]}\n{result.stderr[-3000:]}"
    return result.stdout


def run_page(page, folder):
    """Runs a page's blocks in their order; returns what they printed."""
    printed = []
    for position, (language, title, code) in enumerate(blocks(page)):
        if language == "python":
            script = folder / (title or f"{Path(page).stem}_{position}.py")
            script.write_text(code)
            printed.append(run([sys.executable, "-W", "error::UserWarning", script.name], folder))
        else:
            commands = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ ")]
            assert commands
            printed += [run(["bash", "-c", command], folder) for command in commands]
    return printed


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A folder in which somebody has followed the quick start."""
    folder = tmp_path_factory.mktemp("documentation")
    printed = run_page("quick_start.md", folder)
    assert "share of the path's variance in the plane" in printed[-1]
    return folder


@pytest.mark.slow
def test_the_quick_start_leaves_what_it_says(followed):
    assert {path.name for path in (followed / "run").glob("*.h5")} == {
        "landscape_0-20_pca.h5",
        "landscape_20_random.h5",
    }
    for name in ("contour.png", "surface.png", "landscape.html", "contour.pdf"):
        assert (followed / name).stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages_with_code() if page != "quick_start.md"])
def test_the_code_of(page, followed, tmp_path):
    folder = tmp_path / "followed"
    shutil.copytree(followed, folder)
    run_page(page, folder)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=DOCS.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "site" / "command_line.html").read_text()
    for command in (
        "run",
        "refine",
        "widen",
        "info",
        "plot",
        "view",
        "watch",
        "export",
        "import-checkpoints",
        "devices",
        "demo",
    ):
        assert f"landscape {command}" in page
    python = (tmp_path / "site" / "api.html").read_text()
    assert "gen_landscapes_with_multi_process" in python
    assert python.count("<code>recalibration_batch_size</code>") == 4, "all front doors list their shared options"
