"""Steps and CPU seconds of THOR, SGD and Adam to a training loss of 0.1, on handwritten digits; one thread.

Usage: python tests/benchmarks/thor.py [LeNet-5 | transformer | ResNet-20 ...]
"""

import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from digits_training import NETWORKS, steps_to

from collectors import thor

SGD = {f"SGD-momentum {rate}": ("sgd", rate) for rate in (0.03, 0.1, 0.3)}
ADAM = {f"Adam {rate}": ("adam", rate) for rate in (0.001, 0.003, 0.01)}
THOR_SETTINGS = ((0.01, 0.01, 4, False), (0.01, 0.03, 10, False), (0.01, 0.01, 4, True), (0.03, 0.03, 10, True))
THOR = {
    f"THOR {rate}, damping {damping}, frequency {frequency}{', clipped' * clips}": (
        "thor",
        rate,
        damping,
        frequency,
        clips,
    )
    for rate, damping, frequency, clips in THOR_SETTINGS
}
# Seeds, steps at most, training samples.
WORK = {"LeNet-5": (3, 200, 1024), "transformer": (3, 200, 1024), "ResNet-20": (1, 64, 512)}


def build(net, kind, rate, damping=0.0, frequency=0, clips=False):
    if kind == "thor":
        return thor(net, rate, damping, 0.9, frequency=frequency, enable_clip_grad=clips)
    if kind == "sgd":
        return torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    return torch.optim.Adam(net.parameters(), rate)


def main(names):
    torch.set_num_threads(1)
    # The warnings that layers keep their plain gradients, and what diverging runs say.
    warnings.simplefilter("ignore", UserWarning)
    for name in names:
        seeds, most, samples = WORK[name]
        print(f"\n{name}: {samples} samples, at most {most} steps", end="\n\n")
        print("| | steps to 0.1 | CPU s | last loss |", "|---|---|---|---|", sep="\n")
        for label, settings in {**SGD, **ADAM, **THOR}.items():
            runs = [
                steps_to(0.1, lambda net, s=settings: build(net, *s), seed, most, NETWORKS[name], samples)
                for seed in range(seeds)
            ]
            columns = [[str(steps or "-") for steps, _, _ in runs]]
            columns += [[f"{run[place]:.{digits}f}" for run in runs] for place, digits in ((1, 1), (2, 2))]
            print(f"| {label} | {' | '.join(', '.join(column) for column in columns)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(WORK))
