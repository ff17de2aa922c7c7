"""glotaran/pyglotaran#817: a file of which a part is wrong ended in whatever Python raised there."""

import json

import pytest
from safetensors.numpy import load_file, save_file
from torch import nn

from landscape import Plane, random_plane
from landscape.errors import PlaneError


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_a_damaged_plane_is_named(tmp_path):
    path = random_plane(nn.Linear(4, 3)).save(tmp_path / "plane.safetensors")
    content, tensors = path.read_bytes(), load_file(path)
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    without = {name: tensor for name, tensor in tensors.items() if name != "direction_1/bias"}
    for wrong in ((without, metadata), (tensors, {**metadata, "decomposition": "7"})):
        save_file(wrong[0], path, wrong[1])
        with pytest.raises(PlaneError, match=r"plane\.safetensors holds no whole plane"):
            Plane.load(path)
