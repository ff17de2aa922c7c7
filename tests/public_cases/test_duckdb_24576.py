"""duckdb/duckdb#24576: what a killed process was writing stayed on the disk for ever."""

import subprocess

import pytest
from torch import nn

from landscape import random_plane


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_the_next_plane_of_this_name_removes_it(tmp_path):
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = tmp_path / f".plane.safetensors.{killed.pid}.0123abcd.tmp"
    left.write_bytes(b"half a plane")
    random_plane(nn.Linear(4, 3)).save(tmp_path / "plane.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["plane.safetensors"]
