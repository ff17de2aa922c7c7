"""mawww/kakoune#4098: a named pipe became a regular file when something was written to its name."""

import os

import pytest
from figure_cases import build

from collectors.errors import FileWriteError
from landscape import Landscape
from landscape.errors import LandscapeError


def test_it_stays_one(tmp_path):
    pipe = tmp_path / "values.csv"
    os.mkfifo(pipe)
    with pytest.raises((FileWriteError, LandscapeError), match=r"values\.csv is no regular file and was left as it is"):
        Landscape(build(rows=3, columns=4, points=2)).export(pipe, overwrite=True)
    assert pipe.is_fifo()
