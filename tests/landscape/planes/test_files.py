"""Planes through files of any form are those through the networks that are in them."""

import json

import numpy as np
import pytest
import torch
from runs import SmallNetwork, batches, seeded
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from landscape import evaluate, line_between
from landscape.planes import random_line


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = seeded(SmallNetwork)


def in_parts(state, folder):
    folder.mkdir()
    half = len(state) // 2
    places = {}
    for number, names in enumerate((list(state)[:half], list(state)[half:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: state[name] for name in names}, folder / file)
        places.update(dict.fromkeys(names, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def wholly(state, folder):
    folder.mkdir()
    save_file(state, folder / "model.safetensors")


def inside(prefix, state):
    return {f"{prefix}.{name}": value for name, value in state.items()}


LIGHTNING = {"pytorch-lightning_version": "2.6", "epoch": 1}
COUNT = {"n_averaged": torch.tensor(3)}
WRITTEN = {
    "plain": torch.save,
    "lightning": lambda state, path: torch.save({**LIGHTNING, "state_dict": inside("model", state)}, path),
    "longer names": lambda state, path: torch.save(inside("net.body", state), path),
    "averaged": lambda state, path: torch.save({**COUNT, **inside("module", state)}, path),
    "parts": in_parts,
    "pretrained": wholly,
    "safetensors": lambda state, path: save_file(state, path.with_suffix(".safetensors")),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_plane_through_a_file(tmp_path, form):
    network = seeded(SmallNetwork)
    WRITTEN[form](network.state_dict(), tmp_path / "file")
    (path,) = tmp_path.iterdir()
    expected = random_line(network, seed=3)
    found = random_line(path, network=network, seed=3)
    assert found.space == expected.space
    np.testing.assert_equal(found.origin, expected.origin)
    np.testing.assert_equal(found.directions, expected.directions)
    if form == "longer names":
        return
    # The names of the network may be the longer ones.
    outer = random_line(path, network=Module(), seed=3)
    assert {name.removeprefix("model.") for name in outer.origin} == set(expected.origin)


@pytest.mark.slow
def test_an_averaged_network_is_measured_like_the_network_in_it(tmp_path):
    averaged = AveragedModel(seeded(SmallNetwork))
    averaged.update_parameters(seeded(SmallNetwork, 1))
    inputs = torch.cat([batch[0] for batch in batches()])
    targets = torch.cat([batch[1] for batch in batches()])

    def losses(origin, network):
        plane = line_between(origin, seeded(SmallNetwork, 5))
        options = {"x": [0.0, 0.5, 1.0], "device_ids": [0], "progress": False}
        return evaluate(plane, lambda: (nn.CrossEntropyLoss(), network, (inputs, targets), {}), **options).loss

    expected = losses(averaged.module, seeded(SmallNetwork, 2))
    np.testing.assert_array_equal(losses(averaged, seeded(SmallNetwork, 2)), expected)
    np.testing.assert_array_equal(losses(averaged.module, AveragedModel(seeded(SmallNetwork, 2))), expected)
    np.testing.assert_array_equal(losses(averaged.state_dict(), seeded(SmallNetwork, 2)), expected)
