"""The commands that measure more of a landscape: ``refine`` and ``widen``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OTHER_GRID, OTHER_GRID_ALONG_EIGENVECTORS, OTHER_GRID_OF_CURVE
from ..record.option import Option
from ..record.options import OPTIONS, ChangeOptions
from .arguments import load_function
from .options import WORKER_OPTIONS, with_options

# More than a name could lead anywhere: the text comes from a file, which somebody else may have written.
_REMEMBERED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")

_OPTIONS: Mapping[str, Option] = {
    "margin": replace(
        OPTIONS["margin"], help="How far to reach beyond the path, as a share of its range; without a path, of [-1, 1]."
    ),
    "limits": replace(OPTIONS["limits"], help="Coordinates to reach: lowest,highest of both axes, or x0,x1,y0,y1."),
    "function": Option(
        None, help="module:function of the callback_fn; when absent, the one that the file names.", typed=str | None
    ),
    "run": Option(
        None, help="The run directory; when absent, the file's folder, or where the file says.", typed=str | None
    ),
    "output": Option(None, help="Another landscape file for the result.", flags=("-o", "--output"), typed=str | None),
}
_SHARED = (
    "function", "run", "output", "device_ids", "sampling", "tolerance", "relative_tolerance", *WORKER_OPTIONS,
    "budget", "progress", "plan", "sample_memory", "compile",
)  # fmt: skip
_CALLED = {
    OTHER_GRID: "Put that file back, if the landscape was moved or copied without it. Or run the command that measured "
    "the landscape (landscape evaluate or landscape barrier) once more, with another --size or --points and the same "
    "--output: points that both grids have are kept, and --save-directions writes that file.",
    OTHER_GRID_OF_CURVE: "Run the `landscape connect` that made it once more, with other --points and the same "
    "--output: points that both grids have are kept.",
    OTHER_GRID_ALONG_EIGENVECTORS: OTHER_GRID_ALONG_EIGENVECTORS.removesuffix(" Or pass plane=plane."),
    "file": "FILE",
}

_File = Annotated[str, typer.Argument(help="The landscape file, or its URL such as s3://bucket/run/landscape.h5.")]


@with_options("size", "factor", *_SHARED, kind=ChangeOptions, table=_OPTIONS, called=_CALLED)
def refine(
    file: _File,
    size: Annotated[
        str | None, typer.Option(help="Points along both axes, such as 79, or along x and y: 79x40.")
    ] = None,
    factor: Annotated[
        str | None, typer.Option(help="Into how many each cell is divided: 2, or 2x1 along x and y.")
    ] = None,
    **options: Any,
) -> None:
    """Measures a landscape on a finer grid; what is measured is kept, and the same command continues.

    Every point is kept with --factor, and with a size whose cells divide those of the file (79 for 40 points). Any
    other size goes into a new file, after a warning that says how many points are kept.
    """
    from ..regridding import refine as refine_in_python

    wanted: dict[str, Any] = {"size": _one_or_each("--size", size), "factor": _one_or_each("--factor", factor)}
    _change(refine_in_python, file, **options, **wanted)


@with_options("margin", "limits", *_SHARED, kind=ChangeOptions, table=_OPTIONS, called=_CALLED)
def widen(file: _File, **options: Any) -> None:
    """Measures more around a landscape; what is measured is kept, and the same command continues.

    The cells stay as large as they are: whole cells are added until the grid reaches as far as asked.
    """
    from ..regridding import widen as widen_in_python

    _change(widen_in_python, file, **options)


def _change(change: Callable[..., Any], file: str, *, function: str | None, **options: Any) -> None:
    landscape = change(file, load_function(_remembered(file) if function is None else function), **options)
    typer.echo(f"{landscape.path}\n  {landscape!r}")


def _remembered(file: str) -> str:
    """Returns the function that a file names, if its module lies in the working directory."""
    from ..grid.landscape_file import read_landscape
    from ..record.provenance import FUNCTION

    said = read_landscape(file).attributes.get(FUNCTION)
    match = _REMEMBERED.fullmatch(said) if isinstance(said, str) else None
    if match is None:
        raise ValueError(
            f"--function is missing: {file} does not name the callback_fn that it was measured with. Pass "
            "--function module:function."
        )
    here = Path.cwd() / match[1]
    is_here = here.is_dir() if match[2] else here.with_suffix(".py").is_file() or (here / "__init__.py").is_file()
    if not is_here:
        raise ValueError(
            f"--function is missing: {file} names {said}, and the module is not in {Path.cwd()}. Run the command where "
            f"it is, or pass --function {said} if you trust the file."
        )
    typer.echo(f"--function {said}, as the file says", err=True)
    return str(said)


def _one_or_each(option: str, text: str | None) -> int | tuple[int, ...] | None:
    """Returns what ``79`` or ``79x40`` says; None where the option is absent."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"{option} must be a number such as 2, or two such as 2x1, but got {text!r}.")
    found = tuple(map(int, parts))
    return found[0] if len(found) == 1 else found
