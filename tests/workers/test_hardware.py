"""What this machine has: cores, also of a process that is pinned, memory, and files and drivers of devices."""

from __future__ import annotations

import os
import resource

import pytest
from scripts import run_script

from collectors.files import system
from workers import hardware

pytestmark = pytest.mark.skipif(not system.LINUX, reason="it is said of Linux, with the others in its place")
pinning = pytest.mark.skipif(len(hardware.usable_cores()) < 2, reason="pinning needs two cores")
GPUS = r"nvidia\d+|dxg|kfd"

# In a process of its own, as pinning is for good.
PROGRAM = """
import os, subprocess, sys, threading
from workers.hardware import pin_process, unpin_thread

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


@pinning
def test_a_thread_and_its_processes_may_leave_the_cores_to_which_the_process_is_pinned():
    every, first = sorted(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(0))[:1]
    assert run_script(PROGRAM).splitlines() == [f"{every} {every}", f"{every} {every}", f"{first} {first}"]


@pinning
def test_a_process_that_was_restricted_by_its_user_stays_so():
    first = sorted(os.sched_getaffinity(0))[:1]
    program = f"import os; os.sched_setaffinity(0, {first}); " + (
        "from workers.hardware import unpin_thread; unpin_thread(); print(sorted(os.sched_getaffinity(0)))"
    )
    assert run_script(program).strip() == str(first)


@pytest.fixture
def put(monkeypatch, tmp_path):
    """The module looks for /proc, /sys and /dev in an empty folder; writes a file there."""
    monkeypatch.setattr(hardware, "Path", lambda *parts: tmp_path.joinpath(*(str(part).lstrip("/") for part in parts)))

    def write(path, text=""):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_cores(monkeypatch):
    assert set(hardware.usable_cores()) == os.sched_getaffinity(0)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert hardware.usable_cores() == (0, 1, 2)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert hardware.usable_cores() == (0,)


def test_elsewhere_nothing_is_pinned(monkeypatch):
    monkeypatch.setattr(system, "LINUX", False)
    monkeypatch.setattr(hardware, "_before_pinning", set())
    monkeypatch.delattr(os, "sched_setaffinity")
    before = os.sched_getaffinity(0)
    hardware.pin_process([0])
    hardware.unpin_thread()
    assert os.sched_getaffinity(0) == before


def test_one_core_is_described(put):
    assert hardware.cpu_description() == []
    put("proc/cpuinfo", "model name: A\nMHz: 1\nflags: fma\n\nmodel name: B\nflags: fma\n")
    assert hardware.cpu_description() == ["model name: A", "flags: fma"]


def test_memory_is_at_most_that_of_the_machine():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < hardware.free_memory() <= total


def test_a_limit_of_the_process_counts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, 0))
    assert hardware.free_memory() == 0


def test_half_of_all_memory_where_the_system_does_not_say(put):
    assert hardware.free_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2


def test_the_groups_around_the_process_count(put):
    put("proc/self/cgroup", "0::/outer/inner\n")
    for folder, limit in (("outer/inner", 9_000_000), ("outer", 5_000_000)):
        put(f"sys/fs/cgroup/{folder}/memory.max", f"{limit}\n")
        put(f"sys/fs/cgroup/{folder}/memory.current", "3000000\n")
        put(f"sys/fs/cgroup/{folder}/memory.stat", "anon 1\ninactive_file 500000\n")
    assert hardware.free_memory() == 2_500_000


def test_a_containers_quota(put):
    assert hardware.core_quota() is None
    for text, cores in (("max 100000", None), ("250000 100000", 2.5)):
        put("sys/fs/cgroup/cpu.max", text)
        assert hardware.core_quota() == cores


def test_files_of_devices(put):
    assert hardware.device_files(GPUS) == []
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null", "dxg", "kfd", "davinci0", "davinci_manager"):
        put(f"dev/{name}")
    assert hardware.device_files(GPUS) == ["/dev/dxg", "/dev/kfd", "/dev/nvidia0", "/dev/nvidia1"]
    assert hardware.device_files(r"davinci\d.*") == ["/dev/davinci0"]


@pytest.mark.parametrize(
    ("windows", "names"),
    [(False, ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"]), (True, ["nvml.dll"])],
)
def test_nvidias_library_is_found_where_the_system_has_it(monkeypatch, windows, names):
    asked = []

    def load(name):
        asked.append(name)
        if name != names[-1]:
            raise OSError(name)
        return "library"

    monkeypatch.setattr(system, "WINDOWS", windows)
    monkeypatch.setattr("ctypes.CDLL", load)
    assert hardware.nvidia_driver() == "library"
    assert asked == names


def test_nvidias_program_is_found_where_wsl_has_it(monkeypatch):
    found = {None: None, "/usr/lib/wsl/lib": "/usr/lib/wsl/lib/nvidia-smi"}
    monkeypatch.setattr("shutil.which", lambda name, path=None: found[path])
    assert hardware.nvidia_program() == "/usr/lib/wsl/lib/nvidia-smi"
