"""FarGroup/FarManager#715: a file with a second name (a hard link) was overwritten through it."""

import os

import pytest
from landscape_examples import build

from landscape import Landscape
from landscape.errors import LandscapeError


def test_a_landscape_does_not_go_through_the_second_name_of_a_note(tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("mine")
    os.link(note, tmp_path / "a.h5")
    with pytest.raises(LandscapeError, match=r"a\.h5"):
        Landscape(build()).save(tmp_path / "a.h5", overwrite=True)
    assert note.read_text() == "mine"
    assert note.samefile(tmp_path / "a.h5")
