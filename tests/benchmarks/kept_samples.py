"""How much ``keep_samples`` writes: bytes that the process gave to the system, against those of its file.

Run it by hand on Linux: ``python tests/benchmarks/kept_samples.py``. The goal is at most twice the file: the losses are
written once to the journal beside it, and once to the file.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

from landscape import evaluate, random_plane

SAMPLES, FEATURES, CLASSES = 20_000, 20, 5


def callback_fn():
    torch.manual_seed(0)
    samples = torch.randn(SAMPLES, FEATURES), torch.randint(0, CLASSES, (SAMPLES,))
    network = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    return nn.CrossEntropyLoss(), network, samples, {}


def bytes_written() -> int:
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar:"))
    return int(line.split()[1])


def main() -> None:
    plane = random_plane(callback_fn()[1], seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder) / "kept.h5", bytes_written()
        evaluate(plane, callback_fn, size=24, output=path, keep_samples=True, compile=False, progress=False)
        written, size = bytes_written() - before, path.stat().st_size
    print(f"24 x 24 points of {SAMPLES:,} samples: {1e-6 * written:.1f} MB written for a file of {1e-6 * size:.1f} MB")
    print(f"{written / size:.2f} times the file (goal: at most 2)")


if __name__ == "__main__":
    main()
