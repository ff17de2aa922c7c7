"""The command ``align``: a network's units in the order of another's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import interruptible, load_function
from .options import with_options
from .typed_checkpoint import TypedCheckpoint

_FORM = "checkpoint file, RUN_DIR (its last checkpoint) or RUN_DIR@NUMBER."


@with_options(
    "function", "output", "samples", "overwrite",
    called={"to": "A", "b": "B", "path": "--output", "example": "--function", "network": "--function"},
)  # fmt: skip
def align(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The network whose order counts: a {_FORM}")],
    b: Annotated[str, typer.Argument(metavar="B", help=f"The network whose units are put in order: a {_FORM}")],
    *,
    function: str,
    output: Annotated[Path, typer.Option("-o", "--output", help="The safetensors file to write: B in the order of A.")],
    samples: Annotated[
        int, typer.Option(min=1, help="How many of the first samples the outputs are compared on.")
    ] = 32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Puts the hidden units of B in the order of A's, which changes nothing that B computes (PyTorch).

    landscape align a.pt b.pt --function my_training:callback_fn -o b_aligned.safetensors
    landscape evaluate a.pt b_aligned.safetensors --function my_training:callback_fn -o line.h5
    """
    from workers.pools.first_call import FirstCall

    from ..paths.alignment import align as align_weights
    from ..replacing import check_no_input, check_replaceable_tensors

    with interruptible():
        typed = [TypedCheckpoint.read(text) for text in (a, b)]
        check_no_input("output", output, [item.place for item in typed])
        if output.exists() and not overwrite:
            raise ValueError(f"--output {output} exists already; choose another name, or pass --overwrite.")
        check_replaceable_tensors(output, "weights", None)
        call = FirstCall(load_function(function))
        target, moved = (item.weights(call.space) for item in typed)
        aligned = align_weights(moved, to=target, network=call.network(), example=call.example(samples))
        aligned.save(output)
    typer.echo(f"{output}\n  " + aligned.summary().replace("\n", "\n  "))
