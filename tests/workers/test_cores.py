"""A pinned process, and a thread of it that is not: in a process of its own, as pinning is for good."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="pinning needs Linux and two cores"
)

PROGRAM = """
import os, subprocess, sys, threading
from workers.cores import pin_process, unpin_thread

def of_child():
    return subprocess.run([sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"],
        capture_output=True, text=True, check=True).stdout.strip()

def beside():
    unpin_thread()
    print(sorted(os.sched_getaffinity(0)), of_child())

allowed = sorted(os.sched_getaffinity(0))
threads = [threading.Thread(target=beside) for _ in range(2)]
threads[0].start(); threads[0].join()
pin_process((allowed[1],))
pin_process((allowed[0],))
threads[1].start(); threads[1].join()
print(sorted(os.sched_getaffinity(0)), of_child())
"""


def test_a_thread_and_its_processes_may_leave_the_cores_to_which_the_process_is_pinned():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    every, first = sorted(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(0))[:1]
    assert done.stdout.splitlines() == [f"{every} {every}", f"{every} {every}", f"{first} {first}"]


def test_a_process_that_was_restricted_by_its_user_stays_so():
    first = sorted(os.sched_getaffinity(0))[:1]
    program = f"import os; os.sched_setaffinity(0, {first}); " + (
        "from workers.cores import unpin_thread; unpin_thread(); print(sorted(os.sched_getaffinity(0)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(first)
