"""Prayag2/konsave#66: beside the file that was asked for, another one was written over a user's."""

import pytest
from figure_cases import build

from collectors.errors import FileWriteError
from landscape import Landscape
from landscape.errors import LandscapeError
from landscape.interactive.page import save_page


def test_a_script_of_the_user_beside_a_page_stays(tmp_path):
    own = tmp_path / "plotly.min.js"
    own.write_text("// mine\n")
    with pytest.raises((FileWriteError, LandscapeError), match=r"plotly\.min\.js .*and was left as it is"):
        save_page(Landscape(build(rows=3, columns=4, points=2)), tmp_path / "page.html", size="small")
    assert own.read_text() == "// mine\n"
