"""What somebody waits for: the import, a picture of a finished landscape, a pool of workers that measures.

Run it by hand: ``python tests/benchmarks/latency.py``. Each line is the median over fresh processes, which a bare
interpreter and the libraries that the work cannot do without are compared with. The goals are 0.3 s for the import,
1.5 s for ``landscape plot`` of 40 x 40 points, and 8 s until two workers have measured their first point.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from landscape_examples import write_landscape

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from figure_cases import build

SIZE = 40
POOL = """
import time
started = time.perf_counter()
last = started
def lap(what):
    global last
    now = time.perf_counter()
    print(f"{what}|{now - last}", flush=True)
    last = now
def callback_fn():
    import numpy as np
    import torch
    from torch import nn
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.Tanh(), nn.Linear(32, 10))
    data = (torch.randn(256, 1, 28, 28), torch.randint(0, 10, (256,)))
    return nn.CrossEntropyLoss(), network, data, {}
if __name__ == "__main__":
    from workers.measurement_options import MeasurementOptions
    from workers.pool import PointTask
    from workers.pools.open_pool import open_pool
    lap("  our modules imported")
    with open_pool(callback_fn, MeasurementOptions(), device_ids=(0, 1), address=ADDRESS) as pool:
        lap("  both workers ready: framework, network, data, plan")
        shapes = {tensor.name: tensor.shape for tensor in pool.description.space.trainable}
        import numpy as np
        state = {name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()}
        pool.load(state, [state, state], {})
        (result,) = pool.run([PointTask((0, 0), (0.1, 0.2))])
        assert result.values is not None, result
        lap("  plane loaded, first point measured")
        print(f"total|{last - started}", flush=True)
    lap("  and closed")
"""


def seconds(*arguments: str, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def pool_laps(script: Path, repeats: int) -> dict[str, float]:
    laps: dict[str, list[float]] = {}
    for _ in range(repeats):
        output = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            what, _, value = line.rpartition("|")
            laps.setdefault(what, []).append(float(value))
    return {what: statistics.median(values) for what, values in laps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pool-repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_landscape(folder / "landscape.h5", build(rows=SIZE, columns=SIZE, points=20))
        bare = seconds("-c", "pass", repeats=options.repeats)
        package = seconds("-c", "import landscape", repeats=options.repeats)
        libraries = "import h5py, matplotlib.figure, matplotlib.backends.backend_agg, typer"
        needed = seconds("-c", libraries, repeats=options.repeats)
        command = "from landscape.cli import main; main()"
        files = (str(folder / "landscape.h5"), "-o", str(folder / "landscape.png"))
        plot = seconds("-c", command, "plot", *files, repeats=options.repeats)
        script = folder / "pool.py"
        pools = {}
        for where, address in (("processes of this machine", None), ("a private Ray", "local")):
            script.write_text(POOL.replace("ADDRESS", repr(address)))
            pools[where] = pool_laps(script, options.pool_repeats)
    print(f"python -c pass                                        {bare:6.2f} s")
    print(f"import landscape                                      {package:6.2f} s   ratio {package / bare:.1f}")
    print(f"import of matplotlib, h5py and typer                  {needed:6.2f} s")
    print(f"landscape plot of {SIZE} x {SIZE} points                     {plot:6.2f} s   ratio {plot / needed:.1f}")
    for where, laps in pools.items():
        total = laps.pop("total")
        print(f"from nothing to the first point of two workers        {total:6.2f} s   {where}")
        for what, lap in laps.items():
            print(f"{what:53} {lap:6.2f} s")


if __name__ == "__main__":
    main()
