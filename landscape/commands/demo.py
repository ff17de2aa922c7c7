"""``landscape demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .interruption import interruptible


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the run and its pictures go.")] = Path(
        "demo_output"
    ),
) -> None:
    """Trains a small network on handwritten digits, measures its two landscapes, draws them."""
    from ..demo import run_demo
    from ..output_folders import make_output_folder

    make_output_folder("--output", output.absolute())
    with interruptible():
        run_demo(output)
