"""The notebooks run from top to bottom, with what a reader has installed, and compute what their texts say.

They are kept with their outputs, which must be those of their cells.
"""

import importlib.util
import json
import re
import socket
from pathlib import Path

import nbformat
import numpy as np
import pytest
from places import ROOT
from scripts import run_script

FOLDER = ROOT / "notebooks"
_SPEC = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
execute = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(execute)
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))

# The kernel's client is not ours, and warns about its own event loop.
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
pytestmark = [QUIET, pytest.mark.room("notebooks", "landscape.cli")]


@pytest.fixture
def run(tmp_path):
    def execute_and_ask(name, **expressions):
        """Returns what a notebook shows and prints, and the values that expressions have at its end."""
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        values = ", ".join(f"{key!r}: {expression}" for key, expression in expressions.items())
        # A kernel that looks for rings at its end takes a second more.
        last = f"import atexit, gc, json; atexit.register(gc.freeze); print(json.dumps({{{values}}}))"
        notebook.cells.append(nbformat.v4.new_code_cell(last))
        execute.execute(notebook, tmp_path)
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        assert not [output for output in outputs if output.output_type == "error"]
        text = "".join(output.get("text", "") for output in outputs)
        assert "Warning" not in text
        pictures = [output.data for output in outputs if "image/png" in output.get("data", {})]
        return pictures, text, json.loads("".join(output.text for output in notebook.cells[-1].outputs))

    return execute_and_ask


def test_every_notebook_is_run_here():
    assert re.findall(r'^        "(\d\d_\w+)",$', Path(__file__).read_text(), re.MULTILINE) == NOTEBOOKS


def faults(notebook):
    """Returns what is wrong with the outputs that a notebook is kept with."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = []
    if notebook.metadata.get("executed") != [execute.executed(cell) for cell in cells]:
        found.append("its outputs are missing or those of other cells; run `make notebooks`")
    outputs = [output for cell in cells for output in cell.outputs]
    found += [f"an error: {output.ename}" for output in outputs if output.output_type == "error"]
    found += [f"on stderr: {output.text[:80]}" for output in outputs if output.get("name") == "stderr"]
    text = json.dumps([{key: value for key, value in output.items() if key != "data"} for output in outputs])
    text += json.dumps([output.data.get("text/plain", "") for output in outputs if "data" in output])
    if not any("image/png" in output.get("data", {}) for output in outputs):
        found.append("no picture")
    kinds = {kind for output in outputs for kind in output.get("data", {})} - {"image/png", "text/plain"}
    found += [f"outputs that the repository's page does not show: {kinds}"] if kinds else []
    for word, pattern in (
        ("a path", r"/(?:tmp|home|root|work|Users|mnt)/"),
        ("an address", r"\b\d{1,3}(?:\.\d{1,3}){3}\b"),
        ("this machine", rf"\b{re.escape(socket.gethostname())}\b"),
        ("a progress bar", r"\\r|\d+%\|"),
        ("a time", r"\d ?(?:ms|it/s|points/s)\b|\d\d:\d\d"),
    ):
        found += [f"{word}: {match[0]}" for match in re.finditer(pattern, text)]
    return found


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_with_the_outputs_of_its_cells(name):
    assert faults(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)) == []


def test_all_notebooks_are_small_enough_for_the_repositorys_page():
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.ipynb")}
    assert sum(sizes.values()) < 2_000_000, sizes


def test_what_is_wrong_with_outputs_is_noticed():
    def notebook():
        return nbformat.read(FOLDER / "01_collect_and_analyse.ipynb", as_version=4)

    def codes(changed):
        return [cell for cell in changed.cells if cell.cell_type == "code"]

    cleared = notebook()
    for cell in codes(cleared):
        cell.outputs = []
    assert faults(cleared) == ["its outputs are missing or those of other cells; run `make notebooks`", "no picture"]
    edited = notebook()
    codes(edited)[2].source += "\n# edited"
    assert faults(edited) == ["its outputs are missing or those of other cells; run `make notebooks`"]
    for output, fault in (
        (nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=[]), "an error: KeyError"),
        (nbformat.v4.new_output("stream", name="stderr", text="a warning"), "on stderr: a warning"),
        (nbformat.v4.new_output("stream", text="/tmp/x"), "a path: /tmp/"),
        (nbformat.v4.new_output("stream", text="at 10.0.0.7"), "an address: 10.0.0.7"),
        (nbformat.v4.new_output("stream", text="\r"), "a progress bar: \\r"),
        (
            nbformat.v4.new_output("display_data", {"text/html": ""}),
            "outputs that the repository's page does not show: {'text/html'}",
        ),
    ):
        wrong = notebook()
        codes(wrong)[1].outputs[0] = output
        assert faults(wrong) == [fault]


@pytest.mark.slow
def test_packages_that_the_page_does_not_name_are_hidden():
    """Of those that are installed here: what neither our package with the extra torch nor Jupyter's kernel needs."""
    code = (
        "import importlib.util, sys; sys.path.insert(0, 'notebooks'); import execute\n"
        "execute.hide(execute.other_packages())\n"
        "import landscape, ipykernel.kernelapp, torch, h5py\n"
        "print([name for name in ('xarray', 'plotly', 'torchmetrics', 'pytest') if importlib.util.find_spec(name)])"
    )
    assert run_script(code, cwd=ROOT) == "[]\n"
    installed = execute.INSTALLED[0].replace("summary-landscape", ".")
    assert f"pip install '{installed}' jupyter" in (ROOT / "docs" / "notebooks.md").read_text()


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_two_optimizers(run):
    pictures, text, facts = run(
        "06_two_optimizers",
        runs="[len(rows) for rows in both.checkpoints.paths]",
        names="[both.checkpoints.runs, both.checkpoints.name[-1]]",
        own="[[float(item.checkpoints.metrics['loss'][row]) for row in (12, 25)] for item in (both, on_one)]",
        kept="[float(1 - (item.checkpoints.residual[25] / item.checkpoints.norm[25]) ** 2) for item in (both, on_one)]",
        projected="float(abs(seen.coordinates[-1] - [on_one.checkpoints.x[25], on_one.checkpoints.y[25]]).max())",
    )
    assert len(pictures) == 2
    assert text.count("own loss") == 2
    assert facts["runs"] == [13, 13]
    assert facts["names"] == [["SGD", "Adam"], "average of Adam"]
    np.testing.assert_allclose(facts["own"][0], facts["own"][1], rtol=1e-6)
    # The plane of both keeps most of Adam's path, that of SGD alone little.
    assert facts["kept"][0] > 0.6
    assert facts["kept"][1] < 0.4
    assert facts["projected"] < 1e-6


@pytest.mark.slow
def test_how_sharp_is_it(run):
    pictures, _, facts = run(
        "07_how_sharp_is_it",
        sharpness="along.eigenvalues[:, 0].tolist()",
        losses="along.loss.tolist()",
        limit="2 / learning_rate",
        at_end="at_end.eigenvalues[-1].tolist()",
        saddle="[found.eigenvalues[0].tolist(), float(mean), float(found.gradient_norm[0])]",
        falls="[float(item.loss.min() - origin) for item in (random, saddle)]",
    )
    assert len(pictures) == 3
    sharpness = np.array(facts["sharpness"])
    # It rises to the limit and stays there, while the loss falls.
    assert sharpness[0] < 0.8 * facts["limit"]
    np.testing.assert_allclose(sharpness[-8:], facts["limit"], rtol=0.1)
    assert facts["losses"][-1] < 0.7 * facts["losses"][3]
    assert facts["at_end"][0] == pytest.approx(sharpness[-1], rel=1e-4)
    (highest, _, lowest, _), mean, gradient = facts["saddle"]
    assert highest > 100
    assert lowest < -0.5
    assert mean > 0.5
    assert gradient < 0.05
    # The random plane shows a minimum, that of the eigenvectors a saddle.
    assert facts["falls"][0] > -1e-6
    assert facts["falls"][1] < -0.004


@pytest.mark.slow
def test_is_a_flatter_than_b(run):
    pictures, text, facts = run(
        "08_is_a_flatter_than_b",
        verdicts="[answer.verdict for answer in comparison.table()]",
        ends="[[answer.low, answer.difference, answer.high] for answer in comparison.table()]",
        methods="[answer.method for answer in comparison.table()]",
        lines="comparison.loss.shape",
        share="float(share)",
        losses="[item.mean for item in comparison.means('loss')]",
    )
    assert len(pictures) == 2
    assert facts["lines"] == [18, 40, 9]
    assert facts["methods"] == ["paired t"] * 3
    assert facts["verdicts"] == ["inconclusive", "AdamW is flatter", "AdamW is flatter"]
    assert all(low <= difference <= high for low, difference, high in facts["ends"])
    assert "216 lines were measured before, 504 are new" in text
    # A single picture hardly ever says more than a coin.
    assert 0.35 < facts["share"] < 0.65
    assert facts["losses"][2] > 3 * max(facts["losses"][:2])
