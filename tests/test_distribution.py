"""What ``pip install .`` brings."""

import zipfile

import pytest
from places import ROOT
from scripts import run_python
from waiting import PATIENCE


@pytest.mark.slow
@pytest.mark.room("collectors", "workers", "landscape")
def test_the_wheel_holds_three_packages_and_one_command(tmp_path):
    run_python("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, patience=PATIENCE * 8)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entry_points).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"collectors", "workers", "landscape"}
    for package in ("collectors", "workers", "landscape"):
        assert f"{package}/py.typed" in names
        sources = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.*") if path.suffix != ".pyc"}
        assert sources <= set(names), sources - set(names)
    assert "landscape = landscape.cli:main" in commands
