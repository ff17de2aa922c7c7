"""JAX networks whose arrays are divided among devices (``jax.sharding``); the host's processor gives four of them."""

import json
import os
import sys

import pytest
from pages import code_blocks, run_page_block, takes_minutes
from scripts import run_script
from waiting import PATIENCE

CHECKS = (
    "equal_to_the_network_on_one_device",
    "on_a_mesh_with_explicit_axes",
    "modules_of_nnx",
    "interpolated_buffers",
    "each_device_holds_its_share",
    "errors",
)
_SCRIPT = """
import json, sys, traceback
sys.path[:0] = json.loads(sys.argv[1])
import jax_sharded_cases
found = {}
for check in json.loads(sys.argv[2]):
    try:
        getattr(jax_sharded_cases, check)()
    except Exception:
        found[check] = traceback.format_exc()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def failures():
    """What went wrong in a process that has four devices, by check."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    # It imports JAX once and compiles for six checks.
    patience = len(CHECKS) * PATIENCE
    printed = run_script(_SCRIPT, json.dumps(sys.path), json.dumps(CHECKS), patience=patience, env=environment)
    return json.loads(printed.splitlines()[-1])


@takes_minutes
@pytest.mark.parametrize("check", CHECKS)
def test_on_four_devices(check, failures):
    assert check not in failures, failures[check]


@takes_minutes
@pytest.mark.slow
def test_the_page(tmp_path):
    run_page_block(code_blocks("several_devices")[2], tmp_path / "page")
