"""One place opens workers, makes the options of a measurement, and compares identities."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "landscape"


@functools.cache
def _nodes():
    return [
        (file.relative_to(ROOT).as_posix(), node)
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call | ast.Attribute)
    ]


def _homes(is_wanted):
    return {file for file, node in _nodes() if is_wanted(node)}


HOMES = {"open_pool": "record/workers.py", "MeasurementOptions": "record/workers.py", "FileWriter": "record/driver.py"}


@pytest.mark.parametrize("name", HOMES)
def test_one_module_calls_it(name):
    def is_call(node):
        return isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))

    assert _homes(is_call) == {HOMES[name]}


def test_identities_are_made_in_one_module():
    """Each names the digest of the samples; only what files say of data sets names it too."""
    found = _homes(lambda node: getattr(node, "attr", "") in ("samples_sha256", "groups_sha256"))
    assert found == {"record/identity.py", "record/provenance.py"}
