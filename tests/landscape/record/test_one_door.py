"""One place opens workers, makes the options of a measurement, and compares identities."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "landscape"


def _homes(is_wanted, *names):
    """Returns the files with a node that is wanted; such a node has one of the names."""
    texts = {file.relative_to(ROOT).as_posix(): file.read_text() for file in ROOT.rglob("*.py")}
    named = {file: text for file, text in texts.items() if any(name in text for name in names)}
    return {file for file, text in named.items() if any(map(is_wanted, ast.walk(ast.parse(text))))}


HOMES = {"open_pool": "record/workers.py", "MeasurementOptions": "record/workers.py", "FileWriter": "record/driver.py"}


@pytest.mark.parametrize("name", HOMES)
def test_one_module_calls_it(name):
    def is_call(node):
        return isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))

    assert _homes(is_call, name) == {HOMES[name]}


def test_identities_are_made_in_one_module():
    """Each names the digest of the samples, as does what files say of data sets."""
    digests = ("samples_sha256", "groups_sha256")
    assert _homes(lambda node: getattr(node, "attr", "") in digests, *digests) == {"record/identity.py"}
