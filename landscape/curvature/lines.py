"""``trace_by_lines``: the trace of a Hessian from losses alone, for whatever has no second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collectors.validation import check_int
from collectors.weights.aligned import NetworkState, Weights, align, as_reader
from workers.curvature.trace import Trace

from ..record.workers import open_workers
from .adding_up import find_out_how_losses_add_up
from .second_differences import find_trace_by_lines


def trace_by_lines(
    weights: Weights,
    callback_fn: Callable[[], Any],
    lines: int = 30,
    *,
    seed: int = 0,
    num_samples: int | Mapping[str, int | None] | None = None,
    device_ids: list[int] | None = None,
) -> Trace:
    """Estimates the trace of the loss's Hessian (the sum of its eigenvalues) in any framework, without derivatives.

    Each line goes through the weights in a random direction of -1 and 1, and takes two losses; the mean of their second
    differences is the trace (Hutchinson 1990). The step is chosen so that the loss rises by a thousandth of itself, and
    tried against its half. Where derivatives exist, ``measure_curvature`` needs fewer passes for the same accuracy.

    Args:
        weights: a network, a state dict, or the path of a file of weights.
        callback_fn: takes no argument; returns (model, network, dataset, metrics), or an Evaluator.
        lines: how many.
        seed: of their directions.
        num_samples: samples that the loss is a mean over; None means all of the data set.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.

    Returns:
        The trace, its 95 % interval (Student's t; NaN for one line), and what each line gave.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        CurvatureError: the loss is not finite there, or cannot be measured.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    check_int("lines", lines, minimum=1)
    check_int("seed", seed, minimum=0)
    reader = as_reader("weights", weights)
    how = {"num_samples": num_samples, "seed": seed, "device_ids": device_ids}
    with open_workers(callback_fn, how, points=2 * lines) as pool:
        space = pool.description.space
        state = align(reader, space)
        find_out_how_losses_add_up(pool, {0: state})
        parameters, buffers = NetworkState(lambda: state, space, own_buffers=True)()
        return find_trace_by_lines(pool, parameters, buffers, lines, seed=seed)
