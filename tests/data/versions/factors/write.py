"""Writes the files beside it: what versions left behind that saved THOR's factors and drew planes along them.

They were written at commit b7dfff6, the last one that could, in a copy of it, where PYTHONPATH is that copy::

    PYTHONPATH=. python write.py FOLDER
"""

import sys
from pathlib import Path

import torch
from torch import nn

from collectors import SummaryCollector, thor
from collectors.run_directory import RunDirectory
from landscape import SummaryLandscape

GENERATOR = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=GENERATOR), torch.arange(12) % 3


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def callback_fn():
    return nn.CrossEntropyLoss(), network(), (INPUTS, TARGETS), {}


def main(folder):
    module = network()
    optimizer = thor(module, learning_rate=0.05, damping=0.1, momentum=0.9, frequency=2)
    chosen = {"train": False, "result": True}
    settings = {"intervals": [[0, 2, 4]], "num_samples": 12, "landscape_size": 3, "create_landscape": chosen}
    settings["factors"] = True
    collector = SummaryCollector(folder / "run", collect_landscape=settings, keep_default_action=False)
    with collector.watch(module, optimizer=optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(INPUTS), TARGETS).backward()
            optimizer.step()
            run.step()
    torch.save(optimizer.state_dict(), folder / "thor.pt")
    torch.save(module.state_dict(), folder / "weights.pt")
    SummaryLandscape(folder / "run").gen_landscapes_with_multi_process(
        callback_fn, device_ids=[0], directions="factors", output=folder, progress=False
    )
    assert len(RunDirectory(folder / "run").metadata.factors) == 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
