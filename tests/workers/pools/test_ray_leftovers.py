"""What a killed driver's private Ray leaves behind goes with the next run; what is in use stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from own_processes import ended_process
from waiting import PATIENCE, wait_until

from collectors.files.system import holding
from workers.pools.ray_session import SESSION_VARIABLE, end_session, remove_dead_sessions, session_processes


def make(folder, name):
    path = folder / name
    (path / "session").mkdir(parents=True)
    (path / "session" / "log").write_text("x")
    return path


@pytest.fixture
def left(tmp_path):
    """The folder of a process that has ended."""
    return make(tmp_path, f"landscape-ray-{ended_process()}-abc")


def process_of(session):
    """A process that does nothing until it is killed."""
    environment = {**os.environ, SESSION_VARIABLE: session}
    process = subprocess.Popen(["tail", "-f", "/dev/null"], env=environment)
    wait_until(lambda: process.pid in session_processes(session), what=lambda: f"its start; {process.poll()=}")
    return process


def test_a_dead_owners_folder_goes_and_a_living_ones_stays(tmp_path, left):
    others = f"landscape-ray-{os.getpid()}-abc", "ray-1-2", "landscape-ray-x-1", left.name.replace("ray-", "")
    stays = [make(tmp_path, name) for name in others]
    remove_dead_sessions(tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in stays)


def test_the_processes_of_a_dead_owner_end(tmp_path, left):
    its, other = process_of(left.name), process_of("landscape-ray-1-other")
    try:
        remove_dead_sessions(tmp_path)
        assert its.wait(timeout=PATIENCE) == -signal.SIGKILL
        assert not left.exists()
        assert other.poll() is None
    finally:
        for process in (its, other):
            process.kill()
            process.wait()


def test_a_locked_folder_stays_whatever_its_owners_id_says(tmp_path, left):
    """In another container with the same /tmp, ids mean other processes."""
    with holding(left / "owner"):
        remove_dead_sessions(tmp_path)
        assert (left / "session" / "log").exists()
    remove_dead_sessions(tmp_path)
    assert not left.exists()


def test_a_link_is_not_followed(tmp_path):
    elsewhere = make(tmp_path, "elsewhere")
    (tmp_path / f"landscape-ray-{ended_process()}-abc").symlink_to(elsewhere)
    remove_dead_sessions(tmp_path)
    assert (elsewhere / "session" / "log").exists()


def test_this_process_is_never_ended(tmp_path, monkeypatch):
    monkeypatch.setenv(SESSION_VARIABLE, "mine")
    end_session(tmp_path / "mine")
    assert session_processes("mine") == []


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[1:2]
from paraboloid import Paraboloid
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool

with open_pool(Paraboloid, MeasurementOptions(), device_ids=[0], address="local"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_private_ray_of_a_killed_driver_goes_at_once(support_folder, tmp_path):
    """Its raylet dies with it; the others need up to a minute to notice."""
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    process = subprocess.Popen([sys.executable, str(script), str(support_folder)])
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    short = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 20 else "/tmp")
    (left,) = short.glob(f"landscape-ray-{process.pid}-*")
    family = [process for process in psutil.process_iter() if process.pid in session_processes(left.name)]
    remove_dead_sessions(short)
    assert not left.exists()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
