"""Every code block of the documentation runs as it stands there."""

import shutil

import pytest
from documentation import DOCS, blocks, gallery, run_page
from PIL import Image
from warm_python import warm_programs

# Run with the real frameworks by tests/frameworks, and with a real Ray head by tests/cluster.
ELSEWHERE = {path.name for path in (DOCS / "trainers").glob("*.md")} | {
    "cluster.md",
    "trackers.md",
    "language_models.md",
    "queue.md",  # by tests/test_queue.py, with a stand-in for sbatch
}
# A page trains, measures and runs several commands: on a busy machine minutes.
pytestmark = [pytest.mark.room("docs", "landscape.cli", "landscape.commands"), pytest.mark.timeout(600)]


def pages_with_code():
    return sorted(
        path.name for path in DOCS.rglob("*.md") if blocks(path.relative_to(DOCS)) and path.name not in ELSEWHERE
    )


@pytest.fixture(scope="module")
def programs():
    """Where the pages' programs are that begin with the libraries loaded; the README's begin as a reader's do."""
    with warm_programs() as folder:
        yield folder


@pytest.fixture(scope="module")
def followed(tmp_path_factory, programs):
    """A folder in which somebody has followed the quick start."""
    folder = tmp_path_factory.mktemp("documentation")
    printed = run_page("quick_start.md", folder, programs)
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
def test_the_code_of(page, followed, programs, tmp_path):
    folder = tmp_path / "followed"
    shutil.copytree(followed, folder)
    run_page(page, folder, programs)
    if page == "gallery.md":
        for picture, _ in gallery():
            with Image.open(folder / picture) as drawn:
                assert len(drawn.convert("RGB").resize((64, 64)).getcolors(64 * 64)) > 10, f"{picture} shows nothing"


def test_the_block_above_each_picture_of_the_gallery_makes_it():
    assert len(gallery()) > 15
    for picture, made in gallery():
        assert made == [picture]
        assert (DOCS / "images" / "gallery" / picture).is_file(), picture
