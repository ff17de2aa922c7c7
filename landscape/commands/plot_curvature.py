"""``landscape plot`` of a curvature file: sharpness over a run, or the spectrum at one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import options_named, usual_dpi

if TYPE_CHECKING:
    from ..figures import CurvatureLook

KINDS = ("sharpness", "spectrum")
_OWNERS = {"--learning-rate": "sharpness", "--scale": "sharpness", "--number": "spectrum", "--width": "spectrum"}
_NAMED = {
    **{name: f"--{name}" for name in ("dpi", "number", "scale", "size", "style", "theme", "title", "width")},
    "path": "--output",
    "learning_rate": "--learning-rate",
    "plot_sharpness": "--kind sharpness",
    "plot_spectrum": "--kind spectrum",
}


def is_of_curvature(kind: str, files: Sequence[str]) -> bool:
    """Returns whether the picture is one of curvature: it was asked for, or the only file holds nothing else.

    Raises:
        LandscapeError: the file cannot be opened; the subclass says why.
    """
    from ..record.kind import CURVATURE
    from ..record.whole_file import kind_of

    if kind in KINDS:
        return True
    return kind == "auto" and len(files) == 1 and kind_of(files[0]) is CURVATURE


def draw_curvature(
    kind: str,
    files: Sequence[str],
    output: Path,
    look: CurvatureLook,
    dpi: int | None,
    own: Mapping[str, Any],
    others: Mapping[str, bool],
) -> None:
    """Draws a curvature file as a picture.

    Args:
        kind: "sharpness", "spectrum" or "auto".
        files: of which there must be one.
        output: the picture's file.
        look: the options of both kinds.
        dpi: dots per inch; None chooses.
        own: the options of one kind, by what is typed; None where one is left out.
        others: whether options were given that belong to landscapes, by what is typed.

    Raises:
        ValueError: an option does not belong here, or has a wrong value.
        LandscapeError: the file cannot be read; the subclass says why.
    """
    from collectors.validation import check_int

    from .. import figures
    from ..curvature.curvature import Curvature

    chosen = "sharpness" if kind == "auto" else kind
    if len(files) != 1:
        raise ValueError(f"--kind {chosen} needs one file, but got {len(files)}.")
    if output.suffix.lower() in (".gif", ".mp4"):
        raise ValueError(f"--output must end in .png, .pdf or .svg for a {chosen}, but got {str(output)!r}.")
    for option, given in others.items():
        if given:
            raise ValueError(f"{option} must be left out for a {chosen}; it belongs to pictures of landscapes.")
    taken: dict[str, Any] = {}
    for option, value in own.items():
        if value is not None and _OWNERS[option] != chosen:
            raise ValueError(f"{option} must be left out for a {chosen}; it belongs to --kind {_OWNERS[option]}.")
        if value is not None:
            taken[option.removeprefix("--").replace("-", "_")] = value
    with options_named(_NAMED):
        if dpi is not None:
            check_int("dpi", dpi, minimum=20, maximum=2400)
        curvature = Curvature.load(files[0])
        draw: Any = figures.plot_sharpness if chosen == "sharpness" else figures.plot_spectrum
        fine = dpi or usual_dpi(look)
        figures.save_figure(draw(curvature, **taken, **look), output, dpi=fine)


def refuse(options: Mapping[str, Any]) -> None:
    """Refuses, for pictures of landscapes, the options of curvature.

    Args:
        options: their values by what is typed; None where one is left out.

    Raises:
        ValueError: one is given.
    """
    for option, value in options.items():
        if value is not None:
            raise ValueError(f"{option} must be left out for a landscape; it belongs to --kind {_OWNERS[option]}.")
