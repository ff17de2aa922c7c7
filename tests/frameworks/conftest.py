"""Which frameworks' tests run here, with little compiling: what JAX has compiled for one of them is there for all."""

import os
import tempfile

import pytest
from cases import ASKED, PACKAGES, installed, runs_here

# Most of what tests with JAX take is compiling the same functions over and over: half of their time.
COMPILED = tempfile.TemporaryDirectory(prefix="jax-", ignore_cleanup_errors=True)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", COMPILED.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# MindSpore makes the program of a convolution anew at each call: for AVX-512 that takes 20 times as long as the
# convolution of a test.
if runs_here("mindspore"):
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

collect_ignore_glob = [f"test_{name}*.py" for name in PACKAGES if not runs_here(name)]


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """One of MindSpore's execution modes, which is set."""
    import mindspore_cases

    mindspore_cases.set_mode(request.param)
    return request.param


@pytest.fixture
def pynative():
    import mindspore_cases

    mindspore_cases.set_mode("pynative")


def pytest_configure(config):
    unknown = sorted(set(ASKED) - set(PACKAGES))
    missing = [name for name in ASKED if name in PACKAGES and not installed(name)]
    if unknown or missing:
        raise pytest.UsageError(f"FRAMEWORKS asks for {ASKED}, but {missing} are not installed, {unknown} unknown.")
