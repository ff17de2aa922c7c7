"""The notebooks run from top to bottom, as a reader would run them, and compute what their texts say."""

import json

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from places import ROOT

FOLDER = ROOT / "notebooks"
CHECKED = (
    "01_collect_and_analyse",
    "02_reading_a_landscape",
    "03_comparing_recipes",
    "04_ray_cluster",
    "05_your_own_trainer",
)

# The kernel's client is not ours, and warns about its own event loop.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning"
)


@pytest.fixture
def run(tmp_path):
    def execute(name, **expressions):
        """Returns what a notebook shows and prints, and the values that expressions have at its end."""
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        values = ", ".join(f"{key!r}: {expression}" for key, expression in expressions.items())
        notebook.cells.append(nbformat.v4.new_code_cell(f"import json; print(json.dumps({{{values}}}))"))
        NotebookClient(
            notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        assert not [output for output in outputs if output.output_type == "error"]
        text = "".join(output.get("text", "") for output in outputs)
        assert "Warning" not in text
        pictures = [output.data for output in outputs if "image/png" in output.get("data", {})]
        return pictures, text, json.loads(outputs[-1].text)

    return execute


def test_every_notebook_is_checked_here_and_kept_without_outputs():
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert [path.stem for path in paths] == list(CHECKED)
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        assert not any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.slow
def test_collect_and_analyse(run):
    pictures, text, facts = run(
        "01_collect_and_analyse",
        files="sorted(path.name for path in folder.glob('*.h5'))",
        ends="[profile.loss[10], profile.loss[30], landscapes[0].checkpoints.metrics['loss'][0]]",
        end="landscapes[0].origin.metrics['loss']",
    )
    assert len(pictures) == 3
    assert text.count("distance from it") == 11
    assert facts["files"] == ["landscape_0-10_pca.h5", "landscape_10_random.h5"]
    # The line runs from the first checkpoint to the last, with the buffers of the first.
    np.testing.assert_allclose(facts["ends"][0], facts["ends"][2], rtol=1e-4)
    assert facts["end"] < 0.2


@pytest.mark.slow
def test_reading_a_landscape(run):
    pictures, _, facts = run(
        "02_reading_a_landscape",
        explained="float(landscape.explained_variance_ratio.sum())",
        own="path.metrics['loss'].tolist()",
        foot="path.projected['loss'].tolist()",
        residual="path.residual.tolist()",
        shrinks="float(shrinks)",
        heights="[float(height) for height in heights]",
        cosines="[item.cosine for item in randoms]",
        rise="{name: float(value) for name, value in rise.items()}",
    )
    assert len(pictures) == 4
    own, foot, residual = (np.array(facts[name]) for name in ("own", "foot", "residual"))
    assert facts["explained"] > 0.8
    assert residual[-1] == pytest.approx(0, abs=1e-4)
    assert foot[-1] == pytest.approx(own[-1], rel=1e-5)
    # Most of the variance is in the plane, and still the feet are other networks than the checkpoints.
    assert max(own[1:-1] / foot[1:-1]) > 1.3
    assert 2 < facts["shrinks"] < 8
    assert max(facts["heights"]) > 1.1 * min(facts["heights"])
    assert max(map(abs, facts["cosines"])) < 0.1
    assert facts["rise"]["sharpest"] > 20 * facts["rise"]["random"] > 0


@pytest.mark.slow
def test_comparing_recipes(run):
    pictures, _, facts = run(
        "03_comparing_recipes",
        scores="{name: scores(network) for name, network in networks.items()}",
        rises="{name: [float(value) for value in values] for name, values in rises.items()}",
        changes="{name: float(value) for name, value in changes.items()}",
        ends="[line.loss[10], line.loss[30]]",
    )
    assert len(pictures) == 2
    small, large = facts["scores"].values()
    assert small[0] < large[0]
    rises = list(facts["rises"].values())
    assert all(len(set(values)) == 6 and min(values) > 0 for values in rises)
    # The text says that the ranges overlap.
    assert max(rises[0]) > min(rises[1])
    assert max(rises[1]) > min(rises[0])
    assert facts["changes"]["none"] > 0.1
    assert facts["changes"]["filter"] < 1e-3
    np.testing.assert_allclose(facts["ends"], [small[0], large[0]], rtol=1e-3)


@pytest.mark.slow
def test_ray_cluster(run):
    pictures, text, facts = run(
        "04_ray_cluster",
        workers="landscape.report.workers",
        shape="landscape.loss.shape",
        difference="float(difference)",
        left="[child.name() for child in __import__('psutil').Process().children(recursive=True)]",
        connected="ray.is_initialized()",
    )
    assert len(pictures) == 1
    assert "a cluster of two nodes" in text
    assert facts["workers"] == 2
    assert facts["shape"] == [15, 15]
    assert facts["difference"] < 1e-5
    assert not facts["connected"]
    assert not [name for name in facts["left"] if any(part in name for part in ("ray", "gcs", "plasma"))]


def test_your_own_trainer(run):
    pictures, text, facts = run(
        "05_your_own_trainer",
        losses="{name: both[1].origin.metrics['loss'] for name, both in landscapes.items()}",
        path="landscapes['plain loop'][0].checkpoints.number.tolist()",
        lightning="has_lightning",
    )
    assert len(pictures) == 2
    assert facts["path"] == list(range(9))
    assert list(facts["losses"]) == (["plain loop", "Lightning"] if facts["lightning"] else ["plain loop"])
    assert ("not installed" in text) != facts["lightning"]
    assert facts["losses"]["plain loop"] < 0.5
