"""Which frameworks' tests run here, and how they compile less."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from cases import ASKED, PACKAGES, installed, runs_here

# Most of what tests with JAX take is compiling the same functions over and over: half of their time. JAX leaves half a
# file where its process ends early, so each session has a folder of its own, which begins with what others have kept.
COMPILED = tempfile.TemporaryDirectory(prefix="jax-", ignore_cleanup_errors=True)
KEPT = Path(sys.prefix) / "jax-compiled"
# So has each worker of a session: what it finds here is the folder of the process that started it, where it would read
# the halves of other workers' files.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", COMPILED.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
KEEPS = installed("jax") and os.environ["JAX_COMPILATION_CACHE_DIR"] == COMPILED.name
if KEEPS and KEPT.is_dir():
    # What another session is writing has a point before its name.
    shutil.copytree(KEPT, COMPILED.name, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)

# The functions of tests are small: optimizing them takes longer than they do.
if runs_here("jax") or runs_here("keras"):
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

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


def pytest_sessionfinish(session, exitstatus):
    """Keeps what JAX has compiled for the environment's next session."""
    if KEEPS and exitstatus == pytest.ExitCode.OK:
        KEPT.mkdir(exist_ok=True)
        for file in Path(COMPILED.name).iterdir():
            if not (KEPT / file.name).exists():
                copied = Path(shutil.copy(file, KEPT / f".{file.name}-{os.getpid()}"))
                copied.replace(KEPT / file.name)
