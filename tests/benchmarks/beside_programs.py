"""CPU time of a point beside other busy programs: the tuned plan against the best of given ones.

Run it by hand: ``python tests/benchmarks/beside_programs.py``. Each run is a fresh process that measures LeNet-5 on
1,024 samples, 40 points, beside 0, 1, 2 and 4 loops that keep a core busy. The goal is 1.3 times the best given plan.
"""

import argparse
import json
import statistics
import subprocess
import sys

from contenders import busy_loops

GIVEN = [f"{threads} {size}" for threads in (1, 2) for size in (64, 256, 1024)]
RUN = """
import json, sys, time, warnings
import numpy as np, torch
from torch import nn
from landscape import Measure
from landscape.planes import random_line
from workers.measurement_plan import MeasurementPlan
warnings.simplefilter("ignore")
def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
data = (torch.randn(1024, 1, 28, 28), torch.randint(0, 10, (1024,)))
asked = sys.argv[1].split()
plan = MeasurementPlan(int(asked[1]), int(asked[0])) if len(asked) == 2 else None
line = random_line(network())
measure = Measure(lambda: (nn.CrossEntropyLoss(), network(), data, {}), plan=plan, progress=False, compile=False)
wall, cpu = time.perf_counter(), time.process_time()
found = measure.grid(line, size=40)
known = found.attributes["measurement_plan"]
print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall, known["threads"], known["batch_size"]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print("loops | tuned: CPU s, wall s, threads x batch | best given: CPU s, threads x batch | ratio of CPU (range)")
    for loops in (0, 1, 2, 4):
        with busy_loops(loops):
            rounds = [{asked: _run(asked) for asked in ("tuned", *GIVEN)} for _ in range(repeats)]
        cpu = {asked: statistics.median(found[asked][0] for found in rounds) for asked in ("tuned", *GIVEN)}
        best = min(GIVEN, key=lambda asked: cpu[asked])
        ratios = sorted(found["tuned"][0] / found[best][0] for found in rounds)
        plans = ", ".join(sorted({f"{found['tuned'][2]} x {found['tuned'][3]}" for found in rounds}))
        wall = statistics.median(found["tuned"][1] for found in rounds)
        print(
            f"{loops} | {cpu['tuned']:.2f}, {wall:.2f}, {plans} | {cpu[best]:.2f}, {best.replace(' ', ' x ')} | "
            f"{cpu['tuned'] / cpu[best]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


def _run(asked: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", RUN, asked], check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
