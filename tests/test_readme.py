"""The README's code runs as it stands there."""

import re
import subprocess
import sys

import pytest
from places import ROOT
from scripts import PATIENCE

README = ROOT / "README.md"


@pytest.mark.slow
def test_the_code_of_the_readme(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    script = tmp_path / "example.py"
    script.write_text(blocks[0])
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script)],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert (tmp_path / "landscape.png").stat().st_size > 10_000
    assert sorted(path.name for path in (tmp_path / "run").glob("*.h5")) == [
        "landscape_0-20_pca.h5",
        "landscape_20_random.h5",
    ]


def test_the_files_that_the_readme_names_exist():
    for name in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / name).exists(), name
