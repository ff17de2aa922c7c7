"""What each part that is there for speed saves: a search for two eigenvalues with all of them, and without one.

Run it by hand: ``python tests/benchmarks/curvature_parts.py LeNet-5``. Ways take turns in one process; CPU seconds count
on a machine that others use as well. Those that keep two cores busy are timed with two threads, by the clock too.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from networks import prepare_work, read_work
from torch import nn

from workers.curvature import blas_threads, measuring
from workers.curvature.products import ProductSettings
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.derivatives import products
from workers.torch.derivatives.core_products import CoreProducts
from workers.torch.evaluator import TorchEvaluator

TURNS = 5
SETTINGS = measuring.CurvatureSettings(top=2, trace_probes=0)
# Samples, epochs of training, and the batch size that suits a forward pass.
CASES = {"LeNet-5": (512, 10, 256), "ResNet-20": (32, 2, 64), "transformer": (512, 10, 128), "perceptron": (512, 10, 128)}


def _without_gradient(find: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: find(*arguments, **{**named, "gradient": None})


def _as_it_is(_: Any, size: int | None) -> int | None:
    return size


def _not_wanted(cores: Any, *_: Any) -> None:
    cores.is_wanted, cores._pool = False, None


def _no_libraries() -> Any:
    return SimpleNamespace(
        lib_controllers=(), select=lambda **_: SimpleNamespace(limit=lambda **_: contextlib.nullcontext())
    )


def ways(threads: int) -> dict[str, contextlib.AbstractContextManager[Any]]:
    """Returns what is done without each part."""
    patch = mock.patch.object
    found = {
        "all": contextlib.nullcontext(),
        "without own convolutions": patch(products, "OwnConvolutions", contextlib.nullcontext),
        "without plain batch normalization": patch(products, "PlainBatchNorm", contextlib.nullcontext),
        "without a start near the gradient": patch(
            measuring, "find_eigenpairs", _without_gradient(measuring.find_eigenpairs)
        ),
        "without larger batches": patch(products.TorchProducts, "_enlarged", _as_it_is),
        "without kept derivatives": patch(products.TorchProducts, "_memory", lambda _: 0.0),
    }
    if threads > 1:
        found = {
            "all": contextlib.nullcontext(),
            "without a batch on each core": patch(CoreProducts, "__init__", _not_wanted),
            "without one BLAS thread": patch(blas_threads, "ThreadpoolController", _no_libraries),
        }
    return found


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=CASES)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    samples, epochs, batch_size = CASES[asked.network]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.pt"
        prepare_work(path, asked.network, samples, epochs)
        network, work = read_work(path)
    parameters = {name: tensor.detach().numpy().copy() for name, tensor in network.named_parameters()}
    buffers = {name: tensor.numpy().copy() for name, tensor in network.named_buffers()}
    plan = MeasurementPlan(batch_size, asked.threads)
    setup = MeasurementSetup(MeasurementOptions(), asked.threads, "cpu", plan)
    evaluator = TorchEvaluator(nn.CrossEntropyLoss(), network, (work["inputs"], work["targets"]), {}, setup)

    def search(few: bool = False) -> tuple[float, float, int]:
        settings = replace(SETTINGS, max_products=2) if few else SETTINGS
        start = time.process_time(), time.perf_counter()
        with evaluator.products(ProductSettings()) as shares:
            found = measuring.measure_state_curvature(shares, parameters, buffers, settings)
        return time.process_time() - start[0], time.perf_counter() - start[1], found.products

    search(few=True)
    times: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways(asked.threads)}
    for _ in range(TURNS):
        for name, way in ways(asked.threads).items():
            with way:
                times[name].append(search())
    print(f"{asked.network}, {samples} samples, {asked.threads} threads: medians of {TURNS} turns, and their range")
    for name, found in times.items():
        cells = [f"{name:36} {found[0][2]:3} products"]
        for place, label in enumerate(("CPU", "clock")):
            own = [turn[place] for turn in found]
            ratios = [one[place] / whole[place] for one, whole in zip(found, times["all"], strict=True)]
            cells.append(
                f"{label} {statistics.median(own):6.2f} s  {statistics.median(ratios):.2f} x "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        print("  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
