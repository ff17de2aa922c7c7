"""RawTherapee/RawTherapee#6192: what happens to a link where a file is to be written over it."""

import pytest
from landscape_examples import build

from landscape import Landscape
from landscape.errors import LandscapeError


def test_a_link_to_weights_is_neither_followed_nor_replaced(tmp_path):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"mine")
    (tmp_path / "a.h5").symlink_to(weights)
    with pytest.raises(LandscapeError, match=r"a\.h5"):
        Landscape(build()).save(tmp_path / "a.h5", overwrite=True)
    assert weights.read_bytes() == b"mine"
    assert (tmp_path / "a.h5").is_symlink()
