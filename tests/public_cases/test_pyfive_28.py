"""NCAS-CMS/pyfive#28: HDF5's checksums are optional, and without them a flipped bit is another value."""

import numpy as np
import pytest
from landscape_examples import build

from landscape import Landscape
from landscape.errors import LandscapeDamagedError


def test_a_flipped_bit_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    Landscape(build()).save(path)
    content = bytearray(path.read_bytes())
    place = content.index(np.float64(Landscape.load(path).metrics["accuracy"][1, 2]).tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(LandscapeDamagedError, match="damaged"):
        Landscape.load(path)
