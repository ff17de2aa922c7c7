"""Runs the notebooks in place, so that they are shown with their pictures: ``make notebooks``, or with names of some.

They run in an environment that has only what ``pip install '.[torch]' jupyter`` brings (docs/notebooks.md): all
other packages that are installed here are hidden from them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.machinery
import io
import sys
import tempfile
from collections.abc import Sequence, Set
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# What docs/notebooks.md says that a reader installs: our package, and of Jupyter what a notebook runs in.
INSTALLED = ("summary-landscape[torch]", "ipykernel", "ipywidgets")
# Hidden from the notebook, too; first, so that nothing is imported before it.
_FIRST_CELL = """
import sys
sys.path.insert(0, {folder!r})
import execute
sys.path.remove({folder!r})
execute.hide({packages!r})
"""


def main(names: Sequence[str]) -> None:
    """Executes the notebooks that are named, or all, and replaces them."""
    import nbformat

    paths = [FOLDER / f"{name.removesuffix('.ipynb')}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, folder)
        keep(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def execute(notebook: Any, folder: str | Path) -> None:
    """Runs a notebook's cells with only the packages that its readers have; outputs are put into it.

    Args:
        notebook: of nbformat.
        folder: where it runs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    first = _FIRST_CELL.format(folder=str(FOLDER), packages=other_packages())
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    client = NotebookClient(notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    try:
        client.execute()
    finally:
        del notebook.cells[0]


def keep(notebook: Any) -> None:
    """Leaves of an executed notebook what does not change with the machine, and notes which code was run."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(cells, start=1):
        cell.execution_count = count
        cell.metadata.pop("execution", None)
        cell.outputs = joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            if "data" in output:
                output.metadata = {}
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = small_picture(output.data["image/png"])
    notebook.metadata.executed = [executed(cell) for cell in cells]
    notebook.metadata.language_info = {"name": "python"}


def joined(outputs: Sequence[Any]) -> list[Any]:
    """Returns outputs in which texts that follow each other are one: how they were divided is chance."""
    result: list[Any] = []
    for output in outputs:
        if result and output.output_type == "stream" and result[-1].get("name") == output.name:
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def small_picture(picture: str) -> str:
    """Returns a PNG in 256 colours that are mixed where there were more: a third of the bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    target = io.BytesIO()
    colors = image.quantize(256)
    image.quantize(palette=colors, dither=Image.Dither.FLOYDSTEINBERG).save(target, "PNG", optimize=True)
    return base64.b64encode(target.getvalue()).decode()


def executed(cell: Any) -> dict[str, Any]:
    """Returns by which a cell is recognized that was changed, or lost outputs, since it was run."""
    return {"code": hashlib.sha256(cell.source.encode()).hexdigest()[:12], "outputs": len(cell.outputs)}


@functools.cache
def other_packages(installed: Sequence[str] = INSTALLED) -> set[str]:
    """Returns the packages of all distributions but the given ones and what they need."""
    allowed = needed(installed)
    return {
        name
        for name, distributions in metadata.packages_distributions().items()
        if allowed.isdisjoint(map(_normal, distributions))
    }


def hide(packages: Set[str]) -> None:
    """Hides packages in this process."""
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[place] = _finder_without(packages)


def needed(installed: Sequence[str]) -> set[str]:
    """Returns the names of the distributions that the given ones bring, themselves included."""
    from packaging.requirements import Requirement

    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in installed]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *sorted(requirement.extras)):
            key = (_normal(requirement.name), extra)
            if key in found:
                continue
            found.add(key)
            try:
                lines = metadata.requires(requirement.name) or []
            except metadata.PackageNotFoundError:
                continue  # of another platform
            for needs in map(Requirement, lines):
                if needs.marker is None or needs.marker.evaluate({"extra": extra}):
                    waiting.append(needs)
    return {name for name, _ in found}


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _finder_without(hidden: Set[str]) -> Any:
    class Finder(importlib.machinery.PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
            if fullname.partition(".")[0] in hidden:
                return None
            return super().find_spec(fullname, path, target)

    return Finder


if __name__ == "__main__":
    main(sys.argv[1:])
