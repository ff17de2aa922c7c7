"""What is said of errors that HDF5 reports."""

import subprocess
import sys

from waiting import PATIENCE

from landscape.record.hdf5 import reason

# In a process of its own: HDF5 may crash when it closes a file that it could not write.
FAILING = """
import os, resource, sys
import h5py, numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
file = h5py.File(sys.argv[1], "w")
try:
    file["x"] = np.zeros(100_000)
    file.flush()
except Exception as error:
    print(error, flush=True)
os._exit(0)
"""


def test_of_a_failure_of_the_disk_only_what_the_system_said(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path / "a.h5")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert "buf = 0x" in done.stdout, "HDF5 does not say where its buffer is any more"
    assert reason(OSError(done.stdout)) == "File too large"


def test_of_all_others_the_first_line():
    assert reason(ValueError("one\ntwo")) == "one"
    assert reason(ValueError()) == "ValueError"
