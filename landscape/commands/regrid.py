"""A landscape file on another grid: what ``evaluate`` does where it is given one in place of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from collectors.files.places import is_url

from ..errors import OTHER_GRID, OTHER_GRID_ALONG_EIGENVECTORS, OTHER_GRID_OF_CURVE
from ..record.option import Option
from ..record.options import OPTIONS
from ..record.whole_file import holds_ours, path_of
from .arguments import check_left_out, load_function, one_or_each
from .options import WORKER_OPTIONS

if TYPE_CHECKING:
    from ..landscape import Landscape

# More than a name could lead anywhere: the text comes from a file, which somebody else may have written.
_REMEMBERED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


_AS_BEFORE = ", or as the landscape file has it."
OF_A_FILE = "for a landscape file, which says how it was measured"
OPTIONS_OF_FILES: Mapping[str, Option] = {
    "function": Option(None, help="module:function of the callback_fn; the working directory is searched first. Of a "
        "landscape file by default the one that it names.", typed=str | None),
    "run": Option(None, help="Of a landscape file: its run directory; by default the file's folder, or where the "
        "file says.", typed=str | None, panel="Directions"),
    "sampling": OPTIONS["sampling"].or_none(str | None, "full (every point is measured) or adaptive (some are, the "
        f"others interpolated); by default full{_AS_BEFORE}"),
    "tolerance": OPTIONS["tolerance"].or_none(float | None, "Largest estimated error of the loss in adaptive sampling, "
        f"as a share of the range of all losses; by default 0.01{_AS_BEFORE}"),
    "relative_tolerance": OPTIONS["relative_tolerance"].or_none(bool | None, "Whether the tolerance is a share of the "
        f"loss at each point instead; by default not{_AS_BEFORE}"),
    "margin": replace(OPTIONS["margin"], help="How far the grid reaches beyond the path on each side, as a share of "
        "its range (by default 0.2); without a path, of [-1, 1]."),
}  # fmt: skip
_KEPT = (
    *WORKER_OPTIONS, "device_ids", "budget", "progress", "plan", "sample_memory", "compile", "dry_run", "sampling",
    "tolerance", "relative_tolerance", "limits", "margin",
)  # fmt: skip
CALLED = {
    OTHER_GRID: "Put that file back, if the landscape was moved or copied without it. Or run the command that measured "
    "the landscape (landscape evaluate or landscape connect) once more, with another --size or --points and the same "
    "--output: points that both grids have are kept, and --save-directions writes that file.",
    OTHER_GRID_OF_CURVE: "Run the `landscape connect` that made it once more, with other --points and the same "
    "--output: points that both grids have are kept.",
    OTHER_GRID_ALONG_EIGENVECTORS: OTHER_GRID_ALONG_EIGENVECTORS.removesuffix(" Or pass plane=plane."),
    "file": "FILE",
}


def is_landscape_file(place: str) -> bool:
    """Returns whether it is a file of ours, and no checkpoint; a FileNotFoundError where it may be either."""
    if not place.lower().endswith(".h5"):
        return False
    if not (is_url(place) or Path(place).exists()):
        raise FileNotFoundError(f"there is no file {place}. Give a checkpoint, or a landscape file, that is there.")
    try:
        return holds_ours(path_of(place))
    except OSError:
        return False  # reading it says what is wrong


def change(
    file: str,
    function: str | None,
    run: str | None,
    output: str | None,
    size: str | None,
    factor: str | None,
    options: Mapping[str, Any],
) -> Sequence[Landscape]:
    """Measures a landscape on a finer or a wider grid; the options are those that were typed for ``evaluate``."""
    from ..functions import refine, widen

    check_left_out(
        OF_A_FILE,
        {name: options[name] for name in options if name not in _KEPT and options[name] != OPTIONS[name].default},
    )
    changed = {name: value for name, value in options.items() if name in _KEPT}
    reach = {name: changed.pop(name) for name in ("margin", "limits")}
    is_finer, is_wider = (any(value is not None for value in values) for values in ((size, factor), reach.values()))
    if is_finer == is_wider:
        raise ValueError(
            f"--size or --factor must be given for a finer grid of {file}, or --margin or --limits for a wider one"
            + (": one of the two in a call." if is_finer else ".")
        )
    called = load_function(_remembered(file) if function is None else function)
    if is_wider:
        return show_landscape(widen(file, called, run=run, output=output, **reach, **changed))
    example = "2, or two such as 2x1"
    cells = {"size": one_or_each("--size", size, example), "factor": one_or_each("--factor", factor, example)}
    return show_landscape(refine(file, called, run=run, output=output, **cells, **changed))


def show_landscape(landscape: Landscape | None) -> Sequence[Landscape]:
    """Says what was measured, which is nothing in a dry run, and returns it."""
    if landscape is None:
        return []
    typer.echo(f"{landscape.path}\n  {landscape!r}")
    return [landscape]


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
