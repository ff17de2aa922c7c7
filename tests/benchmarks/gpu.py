"""All that a session with a GPU has to run: ``python tests/benchmarks/gpu.py --output FILE``.

1. The project's tests that need a GPU.
2. LeNet-5 at 40 x 40 points and 1,024 samples: our points per second, and the best of the other tools' on the same GPU,
   each in the best of four batch sizes. The goal is 50 times the best of them.
3. ResNet-20 at 20 x 20 points and 256 samples, beside the time that its kernels alone take. The goal is 0.9 of that.

It needs PyTorch, NumPy and this project's other imports (h5py, lazy_loader, jaxtyping, ...), for the tests also pytest,
pytest-timeout and hypothesis, but neither Ray nor scikit-learn: the images are random, and nothing of what is measured
here depends on that. Other tools are measured if they can be imported (``pip install --target``); Li et al.'s loop is
always. Without a GPU ``--device cpu --size 6`` shows that it runs; no figure of it means anything then.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import NETWORKS
from peers import PEERS
from torch import nn

sys.path.append(str(Path(__file__).parents[2]))  # from a plain checkout, nothing installed

from landscape import random_plane
from workers.callback_fn import make_evaluator
from workers.evaluator import MeasurementSetup
from workers.measurement_plan import Workload

ROOT = Path(__file__).parents[2]
CLOSE = 1e-4  # kernels for other batch sizes add in another order
BATCH_SIZES = (64, 128, 256)
TESTS = (
    "tests/workers/torch/test_on_cuda.py",
    "tests/collectors/callbacks/test_loss_monitor.py",
    "tests/collectors/callbacks/test_time_monitor.py",
    "tests/collectors/model/test_model.py",
    "tests/collectors/model_checkpoint/test_resuming.py",
)
JOBS = (("LeNet-5", 40, 1024), ("ResNet-20", 20, 256))
PEER_SECONDS = 10.0


def run_tests() -> int:
    options = ["-q", "-p", "no:cacheprovider", "-rfEs", "-k", "cuda or gpu"]
    command = [sys.executable, "-m", "pytest", *options, *TESTS]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


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


def measure_ours(
    network: nn.Module, data: tuple[torch.Tensor, torch.Tensor], plane: Any, points: np.ndarray, options: Any
) -> dict[str, Any]:
    """Returns our losses, seconds (start-up and compiling apart), the kernels' seconds, and the plan."""
    device = torch.device(options.device)
    compile = {"auto": "auto", "yes": True, "no": False}[options.compile]
    setup = MeasurementSetup(
        threads=torch.get_num_threads(), device=options.device, workload=Workload(compile, len(points))
    )
    start = time.perf_counter()
    evaluator: Any = make_evaluator((nn.CrossEntropyLoss(), network, data, {}), setup)
    try:
        evaluator.load(plane.origin, plane.directions, plane.buffers)
        _wait(device)
        ready = time.perf_counter() - start
        found, seconds = timed(lambda: evaluator.measure(points)["loss"], device)
        return {
            "loss": found,
            "seconds": seconds,
            "getting_ready": ready,
            "kernels": kernel_seconds(lambda: evaluator.measure(points), device),
            "plan": str(evaluator.description.plan),
            "notes": list(evaluator.description.notes),
        }
    finally:
        evaluator.close()


def measure_peers(
    network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, directions: Any, device: torch.device, size: int
) -> dict[str, dict[str, float]]:
    """Returns each tool's points per second, by its batch size; on as large a square as it does in a few seconds."""
    found: dict[str, dict[str, float]] = {}
    for name, measure in PEERS.items():
        module = name.lower().replace("-", "_")
        if not module.isidentifier():
            module = "torch"  # the loop that is ours
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{name}: not measured ({error})")
            continue
        for batch_size in dict.fromkeys(min(size, len(inputs)) for size in (*BATCH_SIZES, len(inputs))):
            batches = list(zip(inputs.split(batch_size), targets.split(batch_size), strict=True))
            side = 3
            while True:
                axis = np.linspace(-1, 1, side)
                try:
                    _, seconds = timed(
                        lambda: measure(network, batches, directions, axis, axis),  # noqa: B023
                        device,
                    )
                except Exception as error:
                    print(f"{name} in batches of {batch_size}: {type(error).__name__}: {error}")
                    break
                found.setdefault(name, {})[str(batch_size)] = side**2 / seconds
                if side == size or seconds > PEER_SECONDS / 4:
                    break
                side = min(size, 2 * side)
    return found


def compare(name: str, size: int, samples: int, options: Any) -> dict[str, Any]:
    device = torch.device(options.device)
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    data = (torch.randn(samples, 1, 32, 32), torch.randint(0, 10, (samples,)))
    plane = random_plane(network, seed=0)
    axis = np.linspace(-1, 1, size)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    network.to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ours = measure_ours(network, data, plane, points, options)
    directions = [{key: torch.from_numpy(array).to(device) for key, array in item.items()} for item in plane.directions]
    corners = axis[[0, -1]]
    inputs, targets = (item.to(device) for item in data)
    expected = PEERS["Li et al.'s loop"](network, [(inputs, targets)], directions, corners, corners)
    for parameter, value in zip(network.parameters(), plane.origin.values(), strict=True):
        parameter.data.copy_(torch.from_numpy(value))  # the loop leaves it at its last point
    grid = ours.pop("loss").reshape(size, size)
    difference = float(np.max(np.abs(grid[np.ix_([0, -1], [0, -1])] / expected - 1)))
    peers = measure_peers(network, inputs, targets, directions, device, size)
    rate = len(points) / ours["seconds"]
    best, best_rate = max(
        ((f"{tool}, {batch}", speed) for tool, item in peers.items() for batch, speed in item.items()),
        key=lambda item: item[1],
    )
    result = {
        "network": name, "points": len(points), "samples": samples, **ours, "points_per_second": rate, "peers": peers,
        "best_peer": best, "times_best_peer": rate / best_rate, "share_of_limit": ours["kernels"] / ours["seconds"],
        "largest_difference": difference,
    }  # fmt: skip
    print(f"\n{name}, {len(points)} points, {samples} samples: {ours['plan']}")
    print(f"notes: {ours['notes']}; ready in {ours['getting_ready']:.1f} s")
    for tool, speeds in peers.items():
        print(f"  {tool}: " + ", ".join(f"{speed:.1f} points/s in {batch}" for batch, speed in speeds.items()))
    print(f"  this tool: {rate:.1f} points/s, {rate / best_rate:.1f} times the best ({best} samples per batch)")
    print(
        f"  {result['share_of_limit']:.2f} of the limit that the kernels alone set; losses differ by {difference:.1e}"
    )
    if difference > CLOSE:
        raise SystemExit(f"{name}: losses differ by {difference:.1e} from those of a plain loop.")
    return result


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Runs everything, writes the figures, and fails where a test or a value does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, help="points along each axis, instead of 40 and 20")
    parser.add_argument("--compile", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    device = torch.device(options.device)
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{machine}, PyTorch {torch.__version__}")
    status = 0 if options.no_tests else run_tests()
    report: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "pytest": status, "jobs": []}
    for name, size, samples in JOBS:
        report["jobs"].append(compare(name, options.size or size, samples, options))
        if options.output:
            options.output.write_text(json.dumps(report, indent=1))
    if status:
        raise SystemExit(f"pytest ended with {status}.")


if __name__ == "__main__":
    main()
