"""Two devices, "twin:0" and "twin:1", for a machine without GPUs: see twin_device.cpp.

They stay for as long as the process lives, and libraries look for accelerators, so tests use them in processes of their
own.
"""

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import torch
from filelock import FileLock
from scripts import run_script

LOADED = []
_PATIENCE = 300.0  # many checks on a busy machine
_SCRIPT = """
import importlib, json, sys, traceback
folders, cases, checks, float64 = json.loads(sys.argv[2])
sys.path[:0] = folders
from twin_device import load_twins
load_twins(sys.argv[1], float64=float64)
module, found = importlib.import_module(cases), {}
for check in checks:
    try:
        getattr(module, f"check_{check}")()
    except Exception:
        found[check] = traceback.format_exc()
print(json.dumps(found))
"""
SOURCE = Path(__file__).with_name("twin_device.cpp")
LIBRARY = "libtwin.so"


def build_twins(folder):
    """Compiles the devices and returns the library's path; it takes some ten seconds."""
    root, library = Path(torch.__file__).parent, folder / LIBRARY
    includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    options = ["-O0", "-std=c++20", "-fPIC", "-shared", "-w"]
    command = ["g++", *options, *includes, "-o", library, SOURCE, f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
    built = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return library


def load_twins(library, *, float64=True):
    """Makes the devices known to PyTorch in this process, with or without float64."""
    torch.ops.load_library(str(library))
    LOADED.append(library)
    if not float64:
        ctypes.CDLL(str(library)).leave_twins_without_float64()
    torch.utils.rename_privateuse1_backend("twin")
    module = types.ModuleType("torch.twin")
    module.is_available = lambda: True
    module.device_count = lambda: 2
    module.current_device = lambda: 0
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device: None
    module.set_rng_state = lambda state, device: None
    sys.modules["torch.twin"] = module
    torch._register_device_module("twin", module)


def checks_of(cases):
    """Returns the names of a file's checks."""
    found = re.findall(r"^def check_(\w+)\(\):", cases.read_text(), re.MULTILINE)
    assert found, cases
    return found


def built_once(factory):
    """Returns the library's path; all files of tests, and all workers of pytest, share it."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "twin_device"
    with FileLock(shared / "twin_device.lock"):
        if not folder.exists():
            build_twins(being_made := factory.mktemp("twin_device"))
            being_made.rename(folder)
    return folder / LIBRARY


def failures_with_twins(factory, cases, *, float64=True):
    """Returns what went wrong in a process that has the devices, by check of a file."""
    folders = [str(cases.parent), str(SOURCE.parent)]
    arguments = [str(built_once(factory)), json.dumps([folders, cases.stem, checks_of(cases), float64])]
    return json.loads(run_script(_SCRIPT, *arguments, patience=_PATIENCE).splitlines()[-1])


@contextlib.contextmanager
def twin_memory(free):
    """Leaves that many bytes of both devices' memory together free, for a while."""
    functions = ctypes.CDLL(str(LOADED[0]))
    functions.twin_memory.restype = ctypes.c_size_t
    functions.limit_twin_memory(ctypes.c_size_t(functions.twin_memory() + free))
    try:
        yield
    finally:
        functions.limit_twin_memory(ctypes.c_size_t(2**63))
