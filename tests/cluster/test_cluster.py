"""Clusters of two nodes: their free devices, what the nodes need to see, and how code gets there."""

import shutil

import pytest
from places import SUPPORT
from waiting import PATIENCE

# Clusters start several times in one script, which takes a busy machine longer than one process is waited for.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE)]

BEGIN = """
import os, secrets, sys
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_ENABLE_AUTOSCALER_V2="0")
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import pytest
import ray
from ray.cluster_utils import Cluster
from cluster_devices import wait_longer_for_places

wait_longer_for_places(setattr)

def two_nodes(**first):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **first})
    cluster.add_node(num_cpus=first.get("num_cpus", 1), num_gpus=first.get("num_gpus", 0))
    cluster.wait_for_nodes()
    return cluster
"""

REACHED = (
    BEGIN
    + """
import fsspec
import numpy as np
from collectors.files import places
from collectors.weights.aligned import NetworkState
from landscape import SummaryLandscape
from landscape.planes import node_processes, passes
from landscape.record import workers as opening
from landscape.planes.node_processes import NodeProcesses

run, project = sys.argv[2:4]
sys.path.insert(0, project)
from my_training import callback_fn

read, by_driver = NetworkState.__call__, []
NetworkState.__call__ = lambda self: by_driver.append(self) or read(self)

# Whatever the size of checkpoints, nodes compute passes over them, of shards of two weights.
opening._LARGE_BYTES, passes._FEWEST_ELEMENTS, node_processes._START_SECONDS = 0, 2, 600
each, on_nodes = NodeProcesses.each, []
NodeProcesses.each = lambda self, function, shared, parts: (
    on_nodes.append((function.__name__, len(self), len(parts))) or each(self, function, shared, parts))

def measure(run, output, **cluster):
    by_driver.clear()
    on_nodes.clear()
    (found,) = SummaryLandscape(run).gen_landscapes_with_multi_process(
        callback_fn, output=output, progress=False, **cluster)
    return found, len(by_driver)

cluster = two_nodes()
# A file system in the memory of this process alone, and no copies on the disk.
places._COPIES_AT_MOST = 0
fsspec.filesystem("memory").put(run + "/ckpt_dir", "/run/ckpt_dir", recursive=True)
os.environ["RAY_ADDRESS"] = cluster.address
unseen, sent = measure("memory://run", "unseen", device_ids=[0, 1], address="auto")
assert not on_nodes
seen, sent_of_seen = measure(run, "seen", device_ids=[0], address="auto")
checkpoints = len(seen.checkpoints.number)
assert on_nodes == [("sha256_of", 2, checkpoints), *((name, 2, 4) for name in (
    "_gram_of_shard", "_rows_of_shard", "_sums_of_shard"))], on_nodes
assert (unseen.report.workers, seen.report.workers) == (2, 1)
assert not ray.is_initialized()
del os.environ["RAY_ADDRESS"]
here, all_of_them = measure(run, "here", device_ids=[0])
assert (sent, sent_of_seen) == (all_of_them, 0), (sent, sent_of_seen, all_of_them)
for name in ("x", "y", "residual", "norm"):
    np.testing.assert_array_equal(getattr(seen.checkpoints, name), getattr(here.checkpoints, name))
for there in (unseen, seen):
    assert there.attributes["identity"] == here.attributes["identity"]
    np.testing.assert_allclose(there.loss, here.loss, rtol=1e-6)
    np.testing.assert_allclose(there.checkpoints.metrics["loss"], here.checkpoints.metrics["loss"], rtol=1e-6)
np.testing.assert_equal(seen.checkpoints.metrics, unseen.checkpoints.metrics)
print("nodes need not reach the run directory, and read it themselves where they do")
"""
)
TRAVELLED = """
def callback_fn():
    import os
    import collectors, network_parts, nets.layers, workers
    from paraboloid_here import Paraboloid
    for module in (network_parts, nets.layers, collectors, workers):
        assert "runtime_resources" in module.__file__, module.__file__
    assert os.environ.get("MINE") == os.environ.get("EXPECTED")
    return Paraboloid()
"""

TRAVEL = """
from workers.errors import CallbackFunctionError
from workers.measurement_options import MeasurementOptions
from workers.pool import PointTask
from workers.pools.ray_pool import RayPool, code_of
from workers.pools.ray_session import RaySession
from paraboloid import paraboloid_plane

project = Path(sys.argv[3])
from my_travel import callback_fn

def measure(pool):
    pool.load(*paraboloid_plane())
    assert {item.key: item.values for item in pool.run([PointTask(2, (2.0, 1.0))])} == {2: {"loss": 9.0}}

hidden = project.with_name("hidden")

# Joined by address: once that is done, no node finds the folder any more.
with RaySession(cluster.address, slots=2, runtime_env=lambda: code_of(callback_fn)):
    project.rename(hidden)
    with RayPool(callback_fn, MeasurementOptions(), device_ids=(0, 1)) as pool:
        assert pool.workers == 2
        measure(pool)
hidden.rename(project)
assert not ray.is_initialized()

# A Ray that the user has initialized keeps the user's own runtime_env.
own = {**code_of(callback_fn), "env_vars": {"MINE": "kept", "EXPECTED": "kept"}}
ray.init(cluster.address, runtime_env=own, log_to_driver=False, logging_level="ERROR")
project.rename(hidden)
with RayPool(callback_fn, MeasurementOptions(), device_ids=(0,)) as pool:
    measure(pool)
ray.shutdown()

# Without one, the error says what is missing.
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
with pytest.raises(CallbackFunctionError, match="No module named 'my_travel'.*runtime_env"):
    RayPool(callback_fn, MeasurementOptions(), device_ids=(0,))
ray.shutdown()
cluster.shutdown()
print("good")
"""


@pytest.mark.timeout(10 * PATIENCE)  # as above, twice
def test_nodes_get_the_code_beside_the_script_and_read_the_run_directory_where_they_can(run, project, run_alone):
    """The same cluster serves both: its start takes longest."""
    (project / "my_travel.py").write_text(TRAVELLED)
    (project / "nets").mkdir()
    (project / "nets" / "__init__.py").touch()
    (project / "nets" / "layers.py").write_text("WIDTH = 3\n")
    shutil.copy(SUPPORT / "paraboloid.py", project / "paraboloid_here.py")
    run_alone(REACHED + TRAVEL, run, project, patience=8 * PATIENCE)


GPUS = (
    BEGIN
    + """
from paraboloid import Paraboloid, paraboloid_plane
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool

# These GPUs are only names: nothing is computed on them.
cluster = two_nodes(num_gpus=2, num_cpus=2)
cluster.add_node(num_cpus=2)
os.environ["RAY_ADDRESS"] = cluster.address

def places(pool):
    return [pool_place[:2] for pool_place in pool._crew.ask_all("place")]

with open_pool(Paraboloid, MeasurementOptions(), device_ids=[1]) as pool:
    found = places(pool)
    assert [gpus for _, gpus in found] == [(1,), (1,)], found
    assert len({node for node, _ in found}) == 2
print("good")
"""
)


def test_the_asked_devices_of_every_node(run_alone):
    run_alone(GPUS)
