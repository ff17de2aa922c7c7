"""How long a hero of 256 x 256 points takes: ``python tests/benchmarks/hero.py [WIDTHxHEIGHT]``.

A cold process draws two pictures; the second one finds the libraries loaded. Seconds of the CPU tell what a busy
machine hides.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIDE = 256


def measured(width: int, height: int) -> None:
    """Draws two pictures and prints what they took, imports and the writing of the PNG included."""
    begun, cpu = time.perf_counter(), time.process_time()
    import numpy as np

    from landscape.grid.data import DirectionsData, LandscapeData
    from landscape.landscape import Landscape
    from landscape.record.checks import PointStatus

    axis = np.linspace(-1, 1, SIDE)
    data = LandscapeData.empty(
        axis, axis.copy(), DirectionsData(np.ones(2), None, 0.0), ("loss",), None, {"decomposition": "random"}
    )
    x, y = axis, axis[:, None]
    data.metrics["loss"][:] = 0.03 + 2 * x**2 + y**2 + 0.3 * (np.sin(9 * x) * np.cos(7 * y)) ** 2
    data.status[:] = PointStatus.MEASURED
    landscape = Landscape(data)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first picture, cold process", "second picture"):
            landscape.plot_hero(pixels=(width, height)).save(Path(folder) / "hero.png")
            now, now_cpu = time.perf_counter(), time.process_time()
            print(f"{name}: {now - begun:.2f} s, {now_cpu - cpu:.2f} s of the CPU")
            begun, cpu = now, now_cpu


if __name__ == "__main__":
    size = sys.argv[1] if len(sys.argv) > 1 else "3840x2160"
    if size == "child":
        measured(int(sys.argv[2]), int(sys.argv[3]))
    else:
        print(f"hero of {SIDE} x {SIDE} points, {size} pixels")
        subprocess.run([sys.executable, __file__, "child", *size.split("x")], check=True)
