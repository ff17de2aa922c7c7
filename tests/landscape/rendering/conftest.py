from __future__ import annotations

import pytest
from figure_cases import build

from landscape.errors import LandscapeRenderingError
from landscape.landscape import Landscape


@pytest.fixture(scope="session")
def _renderer() -> None:
    """Skips what renders where the machine has no OpenGL; ``constraints/install_mesa.sh`` installs it."""
    try:
        Landscape(build(rows=3, columns=3, points=0)).plot_hero(pixels=(64, 64))
    except LandscapeRenderingError as error:
        pytest.skip(str(error))
