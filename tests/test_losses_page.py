"""The page on losses beyond classification: its code runs as it stands there."""

import re

import numpy as np
import pytest
from places import ROOT

from landscape import Landscape

pytestmark = pytest.mark.room("docs/losses.md")
PAGE = (ROOT / "docs" / "losses.md").read_text()
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ")[1:]}
CODE = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in SECTIONS.items()}
WHOLE = [name for name, blocks in CODE.items() if any("evaluate(" in block for block in blocks)]
SAID = {
    "Losses that need gradients": "the loss needs gradients",
    "Losses that draw random numbers": "the same random numbers are drawn",
}


def test_the_page_has_code_for_each():
    assert WHOLE == [
        "Autoencoders",
        "Losses that draw random numbers",
        "Losses that need gradients",
        "Two sequences, dictionaries",
        "Graphs",
    ]


@pytest.mark.parametrize("section", WHOLE)
@pytest.mark.filterwarnings(
    "ignore:the two random",
    "ignore:the loss needs gradients",
    "ignore:loss is measured in lists or graphs",
    "ignore:metric 'accuracy'",
    # torch-geometric on Python 3.14.
    "ignore:.*type_params:DeprecationWarning",
)
def test_the_code_of_a_section(section):
    if section == "Graphs":
        pytest.importorskip("torch_geometric")
    (code,) = CODE[section]
    names = {"__name__": "example"}
    exec(compile(code, section, "exec"), names)
    landscape = names["landscape"]
    assert isinstance(landscape, Landscape)
    assert landscape.complete
    assert np.isfinite(landscape.loss).all()
    assert np.ptp(landscape.loss) > 0
    notes = " ".join(landscape.attributes["notes"])
    assert SAID.get(section, "") in notes
