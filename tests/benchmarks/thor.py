"""Steps and CPU seconds of THOR, SGD and Adam to a training loss of 0.1, on handwritten digits; one thread.

Usage: python tests/benchmarks/thor.py [LeNet-5 | transformer | ResNet-20 | shares ...]

"shares" is how much of the Hessian's first eigenvectors lies in the leading ones of THOR's factors, on LeNet-5.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from digits_training import NETWORKS, SAMPLES, LeNet5, digits, steps_to

from collectors import thor
from collectors.weights.kronecker import leading_vectors

SGD = {f"SGD-momentum {rate}": ("sgd", rate) for rate in (0.03, 0.1, 0.3)}
ADAM = {f"Adam {rate}": ("adam", rate) for rate in (0.001, 0.003, 0.01)}
THOR = {
    f"THOR {rate}, damping {damping}, frequency {frequency}{', clipped' * clips}": (
        "thor",
        rate,
        damping,
        frequency,
        clips,
    )
    for rate, damping, frequency, clips in (
        (0.01, 0.01, 4, False),
        (0.01, 0.03, 10, False),
        (0.01, 0.01, 4, True),
        (0.03, 0.03, 10, True),
    )
}
# Seeds, steps at most, training samples.
WORK = {"LeNet-5": (3, 200, 1024), "transformer": (3, 200, 1024), "ResNet-20": (1, 64, 512)}


def build(net, kind, rate, damping=0.0, frequency=0, clips=False):
    if kind == "thor":
        return thor(net, rate, damping, 0.9, frequency=frequency, enable_clip_grad=clips)
    if kind == "sgd":
        return torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    return torch.optim.Adam(net.parameters(), rate)


def shares(steps, number=20):
    """Returns the Hessian's five largest eigenvalues, and the shares of their vectors that THOR sees.

    Then what THOR sees along its own first vector, and how the loss bends along it.
    """
    kept = []

    def kept_thor(net):
        kept.extend((net, thor(net, 0.01, 0.01, 0.9, frequency=4)))
        kept[1].keep_factors()
        return kept[1]

    steps_to(0.0, kept_thor, 0, steps)
    net, optimizer = kept
    images, targets = (part[:SAMPLES] for part in digits(LeNet5))
    loss = torch.nn.functional.cross_entropy(net(images), targets)
    gradient = flat(torch.autograd.grad(loss, list(net.parameters()), create_graph=True))

    def product(vector):
        along = torch.from_numpy(vector).float().flatten()
        return flat(torch.autograd.grad(gradient, list(net.parameters()), along, retain_graph=True)).double().numpy()

    size = len(gradient)
    values, vectors = eigsh(LinearOperator((size, size), matvec=product, dtype=np.float64), k=5, tol=1e-3)
    order = np.argsort(-abs(values))
    leading = leading_vectors(optimizer.kept_factors(), number)
    shapes = {name: torch.zeros_like(value) for name, value in net.named_parameters()}
    directions = torch.stack(
        [flat({**shapes, vector.weight: torch.tensor(vector.array)}.values()) for vector in leading]
    ).double()
    found = np.linalg.norm(directions.numpy() @ vectors, axis=0)[order]
    first = directions[0].numpy()
    return values[order], found, leading[0].value, first @ product(first)


def flat(parts):
    return torch.cat([part.flatten() for part in parts])


def main(names):
    torch.set_num_threads(1)
    # The warnings that layers keep their plain gradients, and what diverging runs say.
    warnings.simplefilter("ignore", UserWarning)
    for name in names:
        if name == "shares":
            for steps in (24, 80):
                values, found, seen, bends = shares(steps)
                print(f"\nafter {steps} steps: eigenvalues {values.round(2)}, shares {found.round(2)}")
                print(f"along THOR's first vector it sees {seen:.2f}, and the loss bends by {bends:.2f}")
            continue
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
