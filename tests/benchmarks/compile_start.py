"""What compiled code costs before the first pass: our packages beside ``torch.compile``, each in fresh processes.

Run it by hand: ``python tests/benchmarks/compile_start.py``. "First" has empty caches, "later" those of the first. CPU
seconds are those of the process and of the compilers it starts, without the import of PyTorch; they count on a machine
that others use as well, wall seconds do not. The rate is that of one thread, from CPU seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("eager", "torch.compile", "AOTInductor")


def measure(name: str, way: str, batch_size: int) -> dict[str, float]:
    """Compiles in this process; returns what that cost, and samples per CPU second afterwards."""
    import torch
    from networks import NETWORKS
    from torch import nn

    from workers.evaluator import MeasurementSetup
    from workers.measurement_options import MeasurementOptions
    from workers.measurement_plan import MeasurementPlan
    from workers.torch.evaluator import TorchEvaluator

    torch.manual_seed(0)
    data = (torch.randn(4 * batch_size, 1, 32, 32), torch.randint(0, 10, (4 * batch_size,)))
    compiled = way != "eager"
    images = name != "perceptron"
    plan = MeasurementPlan(
        batch_size, 1, channels_last=compiled and images, compile=compiled, compiler=way if compiled else ""
    )
    setup = MeasurementSetup(MeasurementOptions(), 1, "cpu", plan)
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    evaluator = TorchEvaluator(nn.CrossEntropyLoss(), NETWORKS[name](), data, {}, setup)
    wall, cpu = time.perf_counter() - start, sum(os.times()[:4]) - cpu
    assert evaluator.description.plan.compiler == plan.compiler, evaluator.description.notes
    states = {info.name: torch.zeros(info.shape).numpy() for info in evaluator.description.space.trainable}
    buffers = {info.name: torch.ones(info.shape).numpy() for info in evaluator.description.space.buffers}
    evaluator.load(states, [states], buffers)
    seconds = []
    for _ in range(10):
        before = time.thread_time()
        evaluator.measure([[0.1]])
        seconds.append(time.thread_time() - before)
    evaluator.close()
    return {"cpu": cpu, "wall": wall, "rate": 4 * batch_size / min(seconds)}


def run(name: str, way: str, batch_size: int, cache: Path) -> dict[str, float]:
    environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, __file__, "--child", json.dumps([name, way, batch_size])]
    printed = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="LeNet-5")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*json.loads(options.child))))
        return
    later = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="landscape-bench-compile-") as folder:
            first = run(options.network, way, options.batch_size, Path(folder))
            runs = [run(options.network, way, options.batch_size, Path(folder)) for _ in range(options.repeats)]
        later[way] = {key: statistics.median(item[key] for item in runs) for key in first}
        print(
            f"{way:14} first {first['cpu']:6.2f} CPU s ({first['wall']:6.1f} s), later {later[way]['cpu']:5.2f} CPU s "
            f"({later[way]['wall']:5.1f} s), {later[way]['rate']:7.0f} samples per CPU second"
        )
    eager, theirs, ours = (later[way] for way in WAYS)
    print(f"beyond eager, later: {ours['cpu'] - eager['cpu']:.2f} against {theirs['cpu'] - eager['cpu']:.2f} CPU s")
    print(f"rate: {ours['rate'] / theirs['rate']:.2f} x torch.compile, {ours['rate'] / eager['rate']:.2f} x eager")


if __name__ == "__main__":
    main()
