"""What each part that is there for speed saves: a search for two eigenvalues with all of them, and without one.

Run it by hand: ``python tests/benchmarks/curvature_parts.py LeNet-5``. Ways take turns in one process; CPU seconds
count, on a machine that others use as well. With ``--threads 2`` it tries what keeps several cores from waiting.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from networks import prepare_work, read_work
from torch import nn
from torch.nn import functional

from workers.curvature import lanczos, measuring
from workers.curvature.products import ProductSettings
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.derivatives import operators, products
from workers.torch.derivatives.products import CoreProducts
from workers.torch.evaluator import TorchEvaluator

TURNS = 5
SETTINGS = measuring.CurvatureSettings(top=2, trace_probes=0)
# Samples, epochs of training, and the batch size that suits a forward pass.
CASES = {
    "LeNet-5": (256, 10, 256),
    "ResNet-20": (16, 2, 16),
    "transformer": (512, 10, 128),
    "perceptron": (256, 10, 128),
}


def on_one_core(cores: Any, *_: Any) -> None:
    """Stands for the constructor of CoreProducts."""
    cores.is_wanted, cores._pool = False, None


def no_libraries() -> Any:
    """Stands for the libraries whose threads are limited."""
    unlimited = SimpleNamespace(limit=lambda **_: contextlib.nullcontext())
    return SimpleNamespace(lib_controllers=(), select=lambda **_: unlimited)


def ways(threads: int) -> dict[str, contextlib.AbstractContextManager[Any]]:
    """Returns what is done with all parts, and without each of them."""
    patch = mock.patch.object
    if threads > 1:
        return {
            "all": contextlib.nullcontext(),
            "without a batch on each core": patch(CoreProducts, "__init__", on_one_core),
            "without one BLAS thread": patch(lanczos, "ThreadpoolController", no_libraries),
        }
    normalization = {functional.batch_norm: operators._OWN[functional.batch_norm]}
    convolutions = {key: own for key, own in operators._OWN.items() if key is not functional.batch_norm}
    return {
        "all": contextlib.nullcontext(),
        "without own convolutions": patch(operators, "_OWN", normalization),
        "without own batch normalization": patch(operators, "_OWN", convolutions),
        "without larger batches": patch(products.TorchProducts, "_enlarged", lambda _, size: size),
        "without kept derivatives": patch(products.TorchProducts, "_memory", lambda _: 0.0),
    }


def main() -> None:
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

    def search(settings: measuring.CurvatureSettings = SETTINGS) -> float:
        start = time.process_time()
        with evaluator.products(ProductSettings()) as shares:
            measuring.measure_state_curvature(shares, parameters, buffers, settings)
        return time.process_time() - start

    search(measuring.CurvatureSettings(top=1, trace_probes=0, max_products=2))
    seconds: dict[str, list[float]] = {name: [] for name in ways(asked.threads)}
    for _ in range(TURNS):
        for name, way in ways(asked.threads).items():
            with way:
                seconds[name].append(search())
    print(f"{asked.network}, {samples} samples, {asked.threads} threads: CPU seconds, and how many times those of all")
    for name, found in seconds.items():
        ratios = [one / whole for one, whole in zip(found, seconds["all"], strict=True)]
        spread = f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:36} {statistics.median(found):6.2f} s  {spread}")


if __name__ == "__main__":
    main()
