"""Each adapter loads its own framework and no other, and says what to install where that is missing."""

import os
import subprocess
import sys

import pytest
from cases import PACKAGES, installed, runs_here
from scripts import run_script

ADAPTERS = [name for name in PACKAGES if name not in ("torch", "arrays", "deepspeed", "trackers")]
# What a framework itself stands on.
BENEATH = {
    "lightning": {"torch"},
    "transformers": {"torch"},
    "composer": {"torch", "transformers"},
    "keras": {"torch", "jax"},
}
ROOTS = {
    "torch": {"torch"},
    "lightning": {"lightning", "pytorch_lightning"},
    "transformers": {"transformers"},
    "composer": {"composer"},
    "keras": {"keras"},
    "jax": {"jax"},
    "mindspore": {"mindspore"},
}

PROGRAM = """
import importlib, inspect, sys
if {name!r} == "composer":
    import composer_import
adapter = importlib.import_module("collectors.{name}")
print(*{{name.partition(".")[0] for name in sys.modules}})
import collectors
assert inspect.signature(adapter.SummaryCollector) == inspect.signature(collectors.SummaryCollector)
"""
# With other back ends of Keras, the adapter is the same.
HERE = [] if os.environ.get("KERAS_BACKEND", "torch") != "torch" else [name for name in ADAPTERS if runs_here(name)]


@pytest.mark.parametrize("name", [name for name in HERE if installed(name)])
def test_an_adapter_imports_no_other_framework_and_shows_each_option_and_its_default(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("PYTHONPATH", str(__file__).rpartition("/")[0])
    loaded = run_script(PROGRAM.format(name=name)).split()
    own = {name, *BENEATH.get(name, ())}
    assert name != "jax" or not {"flax", "optax", "ray"} & set(loaded)
    assert not set(loaded) & {root for other, roots in ROOTS.items() if other not in own for root in roots}


@pytest.mark.parametrize("name", [name for name in ADAPTERS if not installed(name)])
def test_a_missing_framework_is_named_with_its_extra(name):
    program = f"from collectors.{name} import SummaryCollector; SummaryCollector('run')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'summary-landscape[{name}]'" in last
