"""``connect``: finds a curve between two networks along which the loss stays low."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from collectors.weights.aligned import Weights
from workers.curves.curve import CurveShape, FittingSettings
from workers.pools.first_call import FirstCall

from ..planes.from_weights import line_between
from ..record.driver import carry_out, open_record
from ..record.options import CurveOptions, documented, with_defaults
from ..record.run import Run
from ..record.writer import output_file
from .fitting import CURVE_FILE, CurveExperiment
from .path import Path

if TYPE_CHECKING:
    from typing import Unpack


@documented(CurveOptions)
def connect(
    a: Weights,
    b: Weights,
    callback_fn: Callable[[], Any],
    kind: str = "bezier",
    bends: int = 1,
    steps: int = 500,
    learning_rate: float = 0.01,
    batch_size: int = 64,
    seed: int = 0,
    *,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    **options: Unpack[CurveOptions],
) -> Path:
    """Fits a curve between two networks, so that the loss along it is low on average.

    Its bends begin on the straight line and follow the gradient of the loss at random places of the curve, by Adam with
    a rate that falls linearly to zero. The gradient of a bend is its share in the point times the gradient there, which
    any PyTorch network has. Layers compute as in evaluation, but BatchNorm with the statistics of each batch.

    Args:
        a: weights of the first network: a network, a state dict, or the path of a file of weights.
        b: those of the last one.
        callback_fn: takes no argument, returns (model, network, dataset, metrics) of PyTorch. Of several data sets the
            first one is used.
        kind: "bezier" (a smooth curve) or "polygon" (straight from bend to bend).
        bends: how many control points there are between the networks.
        steps: of Adam.
        learning_rate: of its first step.
        batch_size: samples of a step; a loss that belongs to its batches gets those of the data set.
        seed: of places and batches.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; one of them fits the curve.
        output: the path's file (.safetensors), or its fsspec URL; None keeps it in memory. The bends are written every
            few seconds, and the same call goes on from there, with the same bits.
        num_samples: samples that batches are taken from; None means all of the data set.
        **options: see ``CurveOptions``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        PlaneError: both networks are the same.
        CurveError: the loss is not finite on the curve, or there are no gradients.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.

    Source: Garipov, Izmailov, Podoprikhin, Vetrov, Wilson 2018; Draxler, Veschgini, Salmhofer, Hamprecht 2018.
    """
    settings = FittingSettings(CurveShape(kind, bends), steps, learning_rate, batch_size, seed)
    chosen: CurveOptions = with_defaults("connect", CurveOptions, options)
    run = Run.checked(chosen)
    path = None if output is None else output_file(output, (a, b))
    if path is not None and run.overwrite:
        CURVE_FILE.check(path, CURVE_FILE.kind)
    call = FirstCall(callback_fn, {**chosen, "device_ids": device_ids})
    line = line_between(a, b, network=call.space, names=chosen["names"])
    # Gradients are computed eagerly.
    how = {**chosen, "seed": seed, "num_samples": num_samples, "device_ids": device_ids, "compile": False}
    with open_record(CURVE_FILE, path, run) as stored:
        fitted = carry_out(lambda _: CurveExperiment(line, settings), stored, call, how, run)
        assert fitted is not None  # no dry run is asked for
        return Path(*fitted)
