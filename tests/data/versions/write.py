"""Writes the files beside it, each in the format of the version that this runs in, and what they held then.

They were written at commit 27b2dde, in a worktree of it, where PYTHONPATH is that worktree::

    PYTHONPATH=. python write.py FOLDER

A format that changes gets another folder of files; these stay.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from collectors import SummaryCollector, thor
from landscape import Comparison, Curvature, Landscape, SummaryLandscape, evaluate, line_between, random_plane
from landscape.functions import compare, connect, measure_curvature

HOW = {"device_ids": [0], "progress": False}
GENERATOR = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=GENERATOR), torch.arange(12) % 3


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def callback_fn():
    return nn.CrossEntropyLoss(), network(0), (INPUTS, TARGETS), {}


def train(folder):
    module = network(1)
    optimizer = thor(module, learning_rate=0.05, damping=0.1, momentum=0.9, frequency=2)
    settings = {"intervals": [[0, 2, 4]], "num_samples": 12, "landscape_size": 3, "factors": True}
    collector = SummaryCollector(folder, collect_landscape=settings, keep_default_action=False)
    with collector.watch(module, optimizer=optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
            run.step(loss)


def numbers(values):
    """Returns arrays as lists, with the names of what JSON has no numbers for."""
    return {name: np.asarray(value, float).astype(str).tolist() for name, value in values.items()}


def of_curvature(curvature):
    names = ("eigenvalues", "residuals", "trace", "number", "share_seen_by_optimizer")
    return numbers({name: getattr(curvature, name) for name in names if getattr(curvature, name, None) is not None})


def of_landscape(landscape):
    names = [name for name in ("x", "y", "loss") if getattr(landscape, name) is not None]
    found = numbers({name: getattr(landscape, name) for name in names})
    checkpoints = landscape.checkpoints
    return found if checkpoints is None else {**found, **numbers({"checkpoint_loss": checkpoints.metrics["loss"]})}


def main(folder):
    a, b = network(1), network(2)
    plane = random_plane(a, seed=3)
    evaluate(plane, callback_fn, size=3, output=folder / "landscape_2.h5", save_directions=True, **HOW)
    (folder / "landscape_2_directions.safetensors").rename(folder / "plane_1.safetensors")
    evaluate(line_between(a, b), callback_fn, size=4, output=folder / "line_2.h5", **HOW)
    measure_curvature(a, callback_fn, top=2, output=folder / "curvature_1.h5", keep_vectors=True, **HOW)
    recipes = {"one": [network(seed) for seed in (1, 2, 3)], "other": [network(seed) for seed in (4, 5, 6)]}
    compare(recipes, callback_fn, directions=4, points=3, output=folder / "comparison_1.h5", **HOW)
    connect(a, b, callback_fn, steps=6, batch_size=4, output=folder / "path_1.safetensors", **HOW)
    with tempfile.TemporaryDirectory() as run:
        train(run)
        SummaryLandscape(run).gen_landscapes_with_multi_process(callback_fn, device_ids=[0])
        found = min(Path(run).glob("landscape_*.h5"))
        (folder / "run_2.h5").write_bytes(found.read_bytes())
        SummaryLandscape(run).gen_curvature(callback_fn, [2, 4], top=2, **HOW)
        (found,) = Path(run).glob("curvature_*.h5")
        (folder / "curvature_1_thor.h5").write_bytes(found.read_bytes())
    expected = {
        name: of_landscape(Landscape.load(folder / name)) for name in ("landscape_2.h5", "line_2.h5", "run_2.h5")
    }
    expected |= {
        name: of_curvature(Curvature.load(folder / name)) for name in ("curvature_1.h5", "curvature_1_thor.h5")
    }
    comparison = Comparison.load(folder / "comparison_1.h5")
    expected["comparison_1.h5"] = numbers({name: getattr(comparison, name) for name in ("t", "loss", "status")})
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]))
