"""What a stranger on the same machine sees: local workers open no port, and those of a private Ray ask for a token."""

import pytest
from waiting import PATIENCE

pytest.importorskip("grpc", reason="attempts at Ray's ports need grpcio, which ray[default] installs")

SCRIPT = """
import http.client, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import grpc
import psutil
from paraboloid import Paraboloid
from waiting import PATIENCE
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
# One call of each service that Ray offers, and what it would do for a stranger.
CALLS = {
    "gcs_server": ["ray.rpc.NodeInfoGcsService/GetAllNodeInfo", "ray.rpc.InternalKVGcsService/InternalKVPut",
                   "ray.rpc.ActorInfoGcsService/CreateActor", "ray.rpc.JobInfoGcsService/AddJob"],
    "raylet": ["ray.rpc.NodeManagerService/GetNodeStats", "ray.rpc.NodeManagerService/RequestWorkerLease",
               "ray.rpc.NodeManagerService/ShutdownRaylet", "ray.rpc.ObjectManagerService/Pull"],
    "agent": ["ray.rpc.ReporterService/ReportOCMetrics"],
    "worker": ["ray.rpc.CoreWorkerService/PushTask", "ray.rpc.CoreWorkerService/KillActor",
               "ray.rpc.CoreWorkerService/GetObjectStatus"],
}
PAGES = [("GET", "/"), ("GET", "/api/job_agent/jobs/"), ("POST", "/api/job_agent/jobs/"), ("GET", "/logs/"),
         ("POST", "/get_or_create_runtime_env"), ("POST", "/delete_runtime_env_if_possible")]

def family():
    return [psutil.Process(), *psutil.Process().children(recursive=True)]

def listening():
    return [(process, item.laddr) for process in family() for item in process.net_connections()
            if item.status == psutil.CONN_LISTEN]

def grpc_answers(port, token=None):
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    metadata = [("authorization", f"Bearer {token}")] if token else None
    answers = {}
    for method in (method for methods in CALLS.values() for method in methods):
        try:
            channel.unary_unary("/" + method)(b"", timeout=PATIENCE, metadata=metadata)
            answers[method] = "answered"
        except grpc.RpcError as error:
            answers[method] = error.code().name
    channel.close()
    return answers

def page_answers(port):
    answers = {}
    for method, path in PAGES:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request(method, path, body="{}")
            response = connection.getresponse()
            answers[method, path] = response.status, response.read(2000).decode()
        except (http.client.HTTPException, ConnectionError):
            return {}  # it speaks another protocol
        finally:
            connection.close()
    return answers

shared_before = set(os.listdir("/dev/shm"))
with open_pool(Paraboloid, MeasurementOptions(), device_ids=[0, 1], address="local") as pool:
    processes = family()
    commands = [" ".join(process.cmdline()) for process in processes]
    for unwanted in ("ray.util.client.server", "monitor.py", "dashboard/dashboard.py"):
        assert not any(unwanted in command for command in commands), unwanted
    (folder,) = Path("/tmp").glob(f"landscape-ray-{os.getpid()}-*")
    assert folder.stat().st_mode & 0o077 == 0

    ports = listening()
    assert {"gcs_server", "raylet"} <= {process.name() for process, _ in ports}
    assert {address.ip for _, address in ports} <= LOOPBACK, ports

    refused, locked_pages = set(), 0
    for process, address in ports:
        calls, pages = grpc_answers(address.port), page_answers(address.port)
        assert "answered" not in calls.values(), (process.name(), calls)
        refused |= {method for method, answer in calls.items() if answer == "UNAUTHENTICATED"}
        if not pages:
            assert "UNAUTHENTICATED" in calls.values(), (process.name(), address, calls)
        elif pages["GET", "/"][0] == 200:
            # Counters and gauges of this machine; there is nothing else on that port, and nothing to be changed.
            assert pages["GET", "/"][1].startswith("# HELP"), pages
            assert all(status == 405 for (method, _), (status, _) in pages.items() if method == "POST"), pages
        else:
            assert all(status == 401 for status, _ in pages.values()), (process.name(), address, pages)
            locked_pages += 1
    # The agent is started without the service that takes reports.
    assert refused >= {method for name in ("gcs_server", "raylet", "worker") for method in CALLS[name]}, refused
    assert locked_pages >= 1

    (gcs,) = [address.port for process, address in ports if process.name() == "gcs_server"]
    assert "answered" not in grpc_answers(gcs, "f" * 64).values()
    assert "answered" in grpc_answers(gcs, os.environ["RAY_AUTH_TOKEN"]).values(), "the token opens it"

_, alive = psutil.wait_procs(processes[1:], timeout=PATIENCE)
assert alive == [], [(process, process.environ(), process.open_files()) for process in alive]
assert psutil.Process().children(recursive=True) == []
assert listening() == []
left = [item for item in psutil.Process().net_connections(kind="unix") if "landscape-ray" in str(item.laddr)]
assert left == [], left
assert not folder.exists()
assert not (Path.home() / ".ray").exists()
# Other programs may make theirs meanwhile.
assert not [name for name in set(os.listdir("/dev/shm")) - shared_before if "ray" in name or "plasma" in name]
print("good")
"""


PROCESSES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import psutil
from paraboloid import Paraboloid
from workers.measurement_options import MeasurementOptions
from workers.pool import PointTask
from workers.pools.open_pool import open_pool

def connections(kind):
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return [(process.name(), item.laddr) for process in family for item in process.net_connections(kind)]

before = {folder: set(os.listdir(folder)) for folder in ("/dev/shm", "/tmp", Path.home())}
with open_pool(Paraboloid, MeasurementOptions(), device_ids=[0, 1]) as pool:
    assert len(psutil.Process().children(recursive=True)) == 3
    assert connections("inet") == []
    assert not any(address for _, address in connections("unix")), "a socket with a name, which others could open"
    for folder, names in before.items():
        assert not [name for name in set(os.listdir(folder)) - names if "landscape" in name], folder
assert psutil.Process().children(recursive=True) == []
assert "ray" not in sys.modules
print("good")
"""


@pytest.mark.slow
def test_local_workers_open_nothing(run_alone):
    run_alone(PROCESSES)


@pytest.mark.slow
@pytest.mark.timeout(5 * PATIENCE)  # every port is asked for a dozen services, which takes a busy machine long
def test_a_private_ray_refuses_strangers(run_alone, home):
    run_alone(SCRIPT)
    assert not (home / ".ray").exists()
