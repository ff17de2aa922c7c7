"""LeNet-5 on one GPU: our points per second, a plain loop's, and the time that the kernels alone take.

Run it by hand: ``python tests/benchmarks/gpu.py``; without a GPU ``--device cpu --size 6`` shows that it runs. It needs
neither Ray nor scikit-learn: the images are random, and nothing of what is measured here depends on that.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import LeNet5
from torch import nn

sys.path.append(str(Path(__file__).parents[2]))  # from a plain checkout, nothing installed

from landscape import random_plane
from workers.callback_fn import make_evaluator
from workers.evaluator import MeasurementSetup
from workers.measurement_plan import Workload

CLOSE = 1e-4  # a GPU's kernels add in another order than a CPU's; here both are the same device's


def plain_loop(
    network: nn.Module, data: tuple[torch.Tensor, torch.Tensor], directions: list[Any], points: np.ndarray
) -> np.ndarray:
    """A loop as other tools have it: everything on the device, weights set from copies, one value read per point."""
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    device = weights[0].device
    first, second = (
        [torch.from_numpy(direction[name]).to(device) for name, _ in network.named_parameters()]
        for direction in directions
    )
    criterion = nn.CrossEntropyLoss()
    losses = []
    with torch.no_grad():
        for x, y in points.tolist():
            for parameter, weight, d0, d1 in zip(network.parameters(), weights, first, second, strict=True):
                parameter.copy_(weight + d0 * x + d1 * y)
            losses.append(criterion(network(data[0]), data[1]).item())
        for parameter, weight in zip(network.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return np.array(losses)


def timed(function: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Returns a function's result and its seconds, after one call that does not count."""
    function()
    _wait(device)
    start = time.perf_counter()
    result = function()
    _wait(device)
    return result, time.perf_counter() - start


def kernel_seconds(function: Callable[[], Any], device: torch.device) -> float:
    """Returns the time that kernels (on a CPU: operators) alone take."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        function()
        _wait(device)
    name = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    return sum(float(getattr(event, name)) for event in profiler.key_averages()) / 1e6


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Prints a table, and fails where the values differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=40, help="points along each axis")
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--compile", choices=("auto", "yes", "no"), default="no")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.manual_seed(0)
    network = LeNet5().eval()
    data = (torch.randn(options.samples, 1, 32, 32), torch.randint(0, 10, (options.samples,)))
    plane = random_plane(network, seed=0)
    axis = np.linspace(-1, 1, options.size)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    compile = {"auto": "auto", "yes": True, "no": False}[options.compile]
    network.to(device)
    inputs, targets = (item.to(device) for item in data)
    expected, loop = timed(lambda: plain_loop(network, (inputs, targets), plane.directions, points), device)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        evaluator: Any = make_evaluator(
            (nn.CrossEntropyLoss(), network, data, {}),
            MeasurementSetup(
                threads=torch.get_num_threads(), device=options.device, workload=Workload(compile, len(points))
            ),
        )
        evaluator.load(plane.origin, plane.directions, plane.buffers)
        found, ours = timed(lambda: evaluator.measure(points)["loss"], device)
        kernels = kernel_seconds(lambda: evaluator.measure(points), device)
    description = evaluator.description
    recorded = evaluator._points._graph is not None
    evaluator.close()
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=1e-7)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"LeNet-5, {len(points)} points, {options.samples} samples, {name}, PyTorch {torch.__version__}")
    print(f"{description.plan}; CUDA graph: {'yes' if recorded else 'no'}; notes: {list(description.notes)}")
    print(f"largest relative difference to the plain loop: {np.max(np.abs(found / expected - 1)):.1e}")
    print(f"{'':32} {'seconds':>9} {'points/s':>10}")
    for label, seconds in (("plain loop", loop), ("this tool", ours), ("its kernels alone (profiler)", kernels)):
        print(f"{label:32} {seconds:9.3f} {len(points) / seconds:10.1f}")
    print(f"this tool is {loop / ours:.2f} times as fast, and takes {ours / kernels:.2f} times as long as its kernels")


if __name__ == "__main__":
    main()
