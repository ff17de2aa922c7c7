"""``landscape plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    file: Annotated[Path, typer.Argument(help="A landscape file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG.")],
    kind: Annotated[str, typer.Option(help="contour or surface; a line is always drawn as a profile.")] = "contour",
    metric: Annotated[str, typer.Option(help="Which of the measured values.")] = "loss",
    scale: Annotated[str, typer.Option(help="auto, log or linear.")] = "auto",
) -> None:
    """Draws a landscape file as a picture."""
    from collectors.validation import check_choice

    from ..figures import save_figure
    from ..surface import Landscape

    check_choice("--kind", kind, ("contour", "surface"))
    landscape = Landscape.load(file)
    check_choice("--metric", metric, tuple(landscape.metrics))
    if landscape.y is None:
        axes = landscape.plot_profile(metric=metric, scale=scale)
    elif kind == "contour":
        axes = landscape.plot_contour(metric=metric, scale=scale)
    else:
        axes = landscape.plot_surface(metric=metric, scale=scale)
    save_figure(axes, output)
    typer.echo(str(output))
