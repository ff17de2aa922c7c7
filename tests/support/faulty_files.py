"""Every file-system call of a play fails once: compiles the shim and runs the trials in a process of their own."""

import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from places import ROOT, SUPPORT
from scripts import run_python

FAULTS = ("EIO", "ENOSPC", "disk full", "short write", "short then full", "kill before", "kill after")


@functools.cache
def shim():
    """Returns the library that makes calls fail; compiled once per session."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    library = Path(tempfile.mkdtemp(prefix="faulty-")) / "faulty_files.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SUPPORT / "faulty_files.c", "-ldl"], check=True)
    return library


def tried(play, folder, every=1, first=0, faults=FAULTS):
    """Lets each call of a play fail by each fault, or every so many-th from one on; returns counts and findings.

    There may be hundreds of trials; each of them ends when its own patience does.
    """
    environment = {
        **os.environ, "LD_PRELOAD": str(shim()), "PYTHONPATH": os.pathsep.join((str(ROOT), str(SUPPORT))),
        "OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "1600000000",
    }  # fmt: skip
    arguments = (play, folder, every, first, ",".join(faults))
    printed = run_python(SUPPORT / "faulty_child.py", *arguments, env=environment, patience=None)
    return json.loads(printed.splitlines()[-1])
