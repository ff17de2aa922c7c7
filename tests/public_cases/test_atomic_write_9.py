"""ysangkok/atomic-write#9: a file that may only be read was replaced, because a rename asks the folder alone."""

import pytest
from landscape_examples import build

from landscape import Landscape
from landscape.errors import LandscapeError


def test_a_landscape_that_may_only_be_read_stays(tmp_path):
    path = Landscape(build()).save(tmp_path / "kept.h5")
    path.chmod(0o444)
    before = path.read_bytes()
    with pytest.raises(LandscapeError, match=r"kept\.h5 is read-only and was left as it is"):
        Landscape(build(seed=1)).save(path, overwrite=True)
    assert path.read_bytes() == before
