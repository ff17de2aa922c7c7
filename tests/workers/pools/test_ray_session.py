"""Ray as a guest: private, locked, gone without a trace; the next run ends what a killed driver's leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from own_processes import ended_process
from places import SUPPORT
from ray_environment import without_ray
from scripts import run_script
from waiting import PATIENCE, wait_until

from collectors.files.system import holding
from workers.errors import PoolError
from workers.pools import ray_session
from workers.pools.ray_session import (
    SESSION_VARIABLE,
    RaySession,
    end_session,
    ray_address,
    ray_is_running,
    remove_dead_sessions,
    session_processes,
)

BEGIN = """
import os, signal, sys
sys.path[:0] = sys.argv[1:2]
from pathlib import Path
import psutil
import pytest
from cluster_devices import wait_longer_for_places
from paraboloid import Paraboloid, locked, paraboloid_plane
from waiting import wait_until
from workers.pools.devices import available_cores, share_cores
from workers.errors import CallbackFunctionError
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool
from workers.pool import PointTask
from workers.pools.ray_pool import RayPool

OPTIONS = MeasurementOptions()
wait_longer_for_places(setattr)

def folders():
    return list(Path("/tmp").glob(f"landscape-ray-{os.getpid()}-*"))

def measure(pool):
    pool.load(*paraboloid_plane())
    results = sorted(pool.run([PointTask(index, (float(index), 1.0)) for index in range(9)]), key=lambda item: item.key)
    assert [item.values for item in results] == [{"loss": float(index**2 + 5)} for index in range(9)]

def check_gone(before):
    family = lambda: psutil.Process().children(recursive=True)
    wait_until(lambda: not family(), what=lambda: f"these to end: {family()}")
    ray = sys.modules["ray"]
    assert not ray.is_initialized()
    assert folders() == []
    connections = psutil.Process().net_connections()
    assert [item for item in connections if item.status == psutil.CONN_LISTEN] == []
    assert (signal.getsignal(signal.SIGTERM), sys.excepthook) == before[:2]
    changed = {key for key in {*os.environ, *before[2]} if os.environ.get(key) != before[2].get(key)}
    assert changed <= {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_CLIENT_MODE"}, changed

def traces():
    return signal.getsignal(signal.SIGTERM), sys.excepthook, dict(os.environ)
"""

LIFE = """
before = traces()
with open_pool(Paraboloid, OPTIONS, device_ids=[0, 4, 7], address="local") as pool:
    assert type(pool) is RayPool
    assert pool.workers == 3
    shares = share_cores(3, available_cores())
    assert [tuple(psutil.Process(number).cpu_affinity()) for number in pool.process_ids] == list(shares)
    assert {psutil.Process(number).nice() for number in pool.process_ids} == {psutil.Process().nice()}
    (folder,) = folders()
    (agent,) = [item for item in psutil.Process().children(recursive=True) if "DashboardAgent" in item.cmdline()[0]]
    listening = [item for item in agent.net_connections() if item.status == psutil.CONN_LISTEN]
    assert len(listening) <= 1, f"beside metrics it serves the web: {listening}"
    assert sys.modules["ray._private.utils"].get_dashboard_dependency_error() is None, "Ray was changed for good"
    assert sys.modules["ray._private.services"].resolve_ip_for_localhost.__name__ != "<lambda>", "and so was this"
    measure(pool)
check_gone(before)

with pytest.raises(CallbackFunctionError, match="cannot be sent to the workers"):
    RayPool(locked(), OPTIONS, device_ids=(0,))
check_gone(before)

print("good")
"""


@pytest.fixture
def run_alone(own_ray, tmp_path):
    """Runs a script, which must end well, as a user with a home of his own, for whom nothing of Ray is set."""

    def run(script):
        printed = run_script(BEGIN + script, SUPPORT, env={**os.environ, "HOME": str(tmp_path)}, patience=PATIENCE * 4)
        assert printed.splitlines()[-1] == "good"

    return run


@pytest.mark.slow
@pytest.mark.timeout(5 * PATIENCE)  # Ray starts twice, and each start may take a busy machine half a minute
def test_the_life_of_a_private_ray(run_alone, tmp_path):
    run_alone(LIFE)
    assert not (tmp_path / ".ray").exists()


EARLIER = """
from ray._raylet import AuthenticationMode, get_authentication_mode
before, token = traces(), Path.home() / ".ray" / "auth_token"
# Ray keeps the first one's token for the whole process, whatever becomes of the variable.
for _ in range(1 if token.exists() else 2):
    with open_pool(Paraboloid, OPTIONS, device_ids=[0], address="local") as pool:
        measure(pool)
        assert get_authentication_mode() == AuthenticationMode.TOKEN
        assert ("RAY_AUTH_TOKEN" in os.environ) != token.exists()
    check_gone(before)
    os.environ.pop("RAY_AUTH_TOKEN", None)
print("good")
"""


@pytest.mark.slow
@pytest.mark.timeout(5 * PATIENCE)  # Ray starts twice, as above
@pytest.mark.parametrize("tokens", [0, 1])
def test_ray_may_be_imported_already(run_alone, tmp_path, tokens):
    """That is when it reads most of its settings; a token that is there is used and kept."""
    if tokens:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("a" * 64)
    before = [(path.name, path.stat().st_mtime_ns, path.read_text()) for path in tmp_path.glob(".ray/*")]
    run_alone(EARLIER)
    assert [(path.name, path.stat().st_mtime_ns, path.read_text()) for path in tmp_path.glob(".ray/*")] == before
    assert (tmp_path / ".ray").exists() == bool(tokens)


INTERRUPTED = """
import itertools
with open_pool(Paraboloid, OPTIONS, device_ids=[0, 1], address="local") as pool:
    pool.load(*paraboloid_plane())
    for index, result in enumerate(pool.run(PointTask(number, (0.0, 0.0)) for number in itertools.count())):
        if index == 3:
            print("running", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_everything(tmp_path):
    """A terminal sends SIGINT to the whole process group."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + INTERRUPTED, str(SUPPORT)],
        env={**without_ray(), "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout.readline() == "running\n"
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 4
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode not in (0, None)
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
    assert list(Path("/tmp").glob(f"landscape-ray-{process.pid}-*")) == []


@pytest.mark.parametrize(
    ("before", "gpus", "visible"),
    [(None, (2, 0), "2,0"), ("3,5, 8", (1, 2), "5,8"), ("GPU-a,GPU-b", (0,), "GPU-a"), (None, (), None)],
)
def test_exactly_the_asked_gpus_are_visible(monkeypatch, before, gpus, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert ray_session._visible_gpus(gpus).get("CUDA_VISIBLE_DEVICES") == visible


def test_a_ray_whose_inside_looks_otherwise_is_left_alone(monkeypatch):
    from ray._private import services

    monkeypatch.delattr(services, "resolve_ip_for_localhost")
    with ray_session._small_and_on_loopback() as given:
        assert given == {}
    assert not hasattr(services, "resolve_ip_for_localhost")


class TestAddress:
    @pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "no.such.host.invalid:6379"])
    def test_an_address_without_a_cluster(self, address, monkeypatch):
        """One try that has a limit finds out; Ray, which would try again for many minutes, is not asked."""
        import ray

        tried, asked, connect = [], [], socket.create_connection

        def connect_and_note(place, **how):
            tried.append(how["timeout"])
            return connect(place, **how)

        monkeypatch.setattr(socket, "create_connection", connect_and_note)
        monkeypatch.setattr(ray, "init", lambda **how: asked.append(how))
        with pytest.raises(PoolError, match=r"is not a Ray cluster that .*: .*[^.]\. Start one with `ray start"):
            RaySession(address, slots=1)
        assert tried == [ray_session._REACH_SECONDS]
        assert asked == []
        assert not ray_is_running()

    def test_where_it_comes_from(self, monkeypatch):
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert ray_address(None) is None
        assert ray_address("host:1") == "host:1"
        monkeypatch.setenv("RAY_ADDRESS", "other:2")
        assert ray_address(None) == "other:2"
        assert ray_address("host:1") == "host:1"
        monkeypatch.setenv("RAY_ADDRESS", "local")
        assert ray_address(None) is None


# Stands in for Ray: its server's start fails on some busy machines only.
@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        (["Starting Ray client server failed.", None], 2),
        (["Starting Ray client server failed."] * 3, 3),
        (["Traceback\npsutil.ZombieProcess: PID still exists but it's a zombie (pid=10867)", None], 2),
        (["Traceback\npsutil.NoSuchProcess: process PID not found (pid=10867)", None], 2),
        (["Failed to create runtime_env for Ray client server."], 1),
    ],
)
def test_a_server_of_a_client_that_does_not_start_is_asked_for_again(monkeypatch, answers, tries):
    asked = []

    def init(**arguments):
        asked.append(arguments["address"])
        answer = answers[len(asked) - 1]
        if answer is not None:
            raise ConnectionAbortedError(f"Initialization failure from server:\n{answer}")

    monkeypatch.setattr(ray_session, "_CLIENT_PAUSES_SECONDS", (0.0, 0.0))
    expected = (
        contextlib.nullcontext() if answers[-1] is None else pytest.raises(ConnectionAbortedError, match=answers[-1])
    )
    with expected:
        ray_session._connect(SimpleNamespace(init=init), "ray://head:10001", None)
    assert asked == ["ray://head:10001"] * tries


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
with open_pool(Paraboloid, OPTIONS, device_ids=[0], address="local"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_private_ray_of_a_killed_driver_goes_at_once():
    """Its raylet dies with it; the others need up to a minute to notice."""
    process = subprocess.Popen([sys.executable, "-c", BEGIN + KILLED, str(SUPPORT)])
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    short = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= 20 else "/tmp")
    (left,) = short.glob(f"landscape-ray-{process.pid}-*")
    family = [process for process in psutil.process_iter() if process.pid in session_processes(left.name)]
    remove_dead_sessions(short)
    assert not left.exists()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
