"""What ``dry_run`` says a landscape will cost beside what it then costs, on four networks.

Run it by hand: ``python tests/benchmarks/forecasts.py``. Forecast and measurement are fresh processes, in turn, with
compiled code as earlier runs left it. Times are those of measuring, memory is the process's peak, disk the file's size.
The goal is a ratio of real to forecast of at most 1.3, and at least 1 / 1.3.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from networks import NETWORKS, prepare_work, read_work
from torch import nn

from landscape import evaluate, random_plane

SAMPLES = {"LeNet-5": 1024, "ResNet-20": 64, "perceptron": 1024, "transformer": 256}
SIZES = {"LeNet-5": 25, "ResNet-20": 12, "perceptron": 40, "transformer": 25}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
PATTERNS = {
    "time": r"about ([\d.,]+) (us|ms|s|min|h)\b",
    "memory": r"process takes ([\d.,]+) (kB|MB|GB)",
    "disk": r"([\d.,]+) (B|kB|MB|GB) on disk",
}


def measure(name: str, folder: Path, *, dry_run: bool) -> None:
    """Measures in this process, and prints what it cost as a line of JSON; a dry run prints its forecast."""
    work, output = folder / f"{name}.pt", folder / f"{name}.h5"

    def callback_fn() -> tuple[object, ...]:
        network, data = read_work(work)
        return nn.CrossEntropyLoss(), network, (data["inputs"], data["targets"]), {}

    plane = random_plane(read_work(work)[0], seed=0)
    found = evaluate(
        plane, callback_fn, size=SIZES[name], output=output, overwrite=True, progress=False, dry_run=dry_run
    )
    if not dry_run:
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"time": found.report.seconds, "memory": peak, "disk": output.stat().st_size}))


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--measure", nargs=3, help="of this script: network, folder, and whether only a forecast is wanted"
    )
    given = parser.parse_args()
    if given.measure:
        name, folder, dry_run = given.measure
        measure(name, Path(folder), dry_run=dry_run == "True")
        return
    with tempfile.TemporaryDirectory(prefix="landscape-forecasts-") as folder:
        for name in NETWORKS:
            prepare_work(Path(folder) / f"{name}.pt", name, SAMPLES[name], 2)
            run("--measure", name, folder, "False")  # leaves compiled code where it pays off
            ratios: dict[str, list[float]] = {kind: [] for kind in PATTERNS}
            for _ in range(given.repeats):
                text = run("--measure", name, folder, "True")
                cost = json.loads(run("--measure", name, folder, "False").splitlines()[-1])
                for kind, pattern in PATTERNS.items():
                    value, unit = re.search(pattern, text).groups()
                    ratios[kind].append(cost[kind] / (float(value.replace(",", "")) * UNITS[unit]))
            shown = (
                f"{kind} {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
                for kind, found in ratios.items()
            )
            work = f"{name}, {SAMPLES[name]} samples, {SIZES[name]} x {SIZES[name]}"
            print(f"{work}: real over forecast: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
