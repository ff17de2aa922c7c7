"""Planes of large models on a cluster: how nodes share the work, and that the bits are those of one process.

Run it by hand: ``python tests/benchmarks/planes_on_nodes.py``. It writes a run of 40 checkpoints of 20 M float32
parameters (3.2 GB), starts a Ray of three nodes on this machine and lays a plane, by the nodes and in this process.
Goal: the largest share of one node in the plane's CPU seconds, those of this process included, is at most 0.42. The
nodes share the cores of this machine, so the wall time says nothing of a cluster's.
"""

from __future__ import annotations

import argparse
import functools
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from big_models import LAYERS, write_trajectory

from collectors.networks.weight_space import WeightSpace, state_sha256
from collectors.weights.safetensors_file import CheckpointFile
from landscape.planes import Plane
from landscape.planes.from_checkpoints import plane_of_runs
from landscape.planes.networks import checkpoints_of_run
from landscape.planes.node_processes import NodeProcesses
from landscape.planes.passes import HERE, Passes, sha256_of


def metered(function: Callable[..., Any], shared: Any, *part: Any) -> tuple[Any, str, float]:
    """Returns a part's result, the node that computed it, and its CPU seconds."""
    import ray

    begin = time.process_time()
    found = function(shared, *part)
    return found, ray.get_runtime_context().get_node_id(), time.process_time() - begin


class Metered(NodeProcesses):
    """Counts the CPU seconds of each node."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(None, main, files)
        self.seconds: Counter[str] = Counter()

    def each(self, function: Callable[..., Any], shared: Any, parts: Sequence[Sequence[Any]]) -> Iterator[Any]:
        for found, node, seconds in super().each(functools.partial(metered, function), shared, parts):
            self.seconds[node] += seconds
            yield found


def plane_by(passes: Passes, paths: Sequence[Path], space: WeightSpace) -> Plane:
    digests = passes.each(sha256_of, None, [(path,) for path in paths])
    readers = [CheckpointFile(path, sha256=digest) for path, digest in zip(paths, digests, strict=True)]
    return plane_of_runs(checkpoints_of_run(readers, range(len(paths))), space, passes=passes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=40)
    parser.add_argument("--elements", type=int, default=20_000_000)
    options = parser.parse_args()
    # The workers of a cluster step back behind all other programs, of which the calling process is one here.
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_worker_niceness": "0"}
    os.environ.update(settings, OMP_NUM_THREADS="1")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    head = ray.get_runtime_context().get_node_id()
    with tempfile.TemporaryDirectory() as folder:
        files, space = write_trajectory(options.checkpoints, round((options.elements / LAYERS) ** 0.5), Path(folder))
        paths = [Path(file.path) for file in files]
        with Metered(paths) as nodes:
            begin, cpu = time.perf_counter(), time.process_time()
            there = plane_by(nodes, paths, space)
            wall = time.perf_counter() - begin
            nodes.seconds[head] += (driver := time.process_time() - cpu)
        begin, cpu = time.perf_counter(), time.process_time()
        here = plane_by(HERE, paths, space)
        alone, wall_alone = time.process_time() - cpu, time.perf_counter() - begin
    ray.shutdown()
    cluster.shutdown()
    total = nodes.seconds.total()
    print(f"{options.checkpoints} checkpoints of {1e-6 * space.dimension:.0f} M float32 parameters, three nodes")
    print(f"CPU seconds of each node         {', '.join(f'{item:.1f}' for item in nodes.seconds.values())}")
    print(f"of them, of the calling process  {driver:.1f}")
    print(f"largest share of one node        {max(nodes.seconds.values()) / total:.3f}")
    print(f"one process alone                {alone:.1f} CPU s ({total / alone:.2f} times as many on nodes)")
    print(f"wall, all on this machine        {wall:.1f} s on nodes, {wall_alone:.1f} s alone")
    same = [*map(state_sha256, there.directions)] == [*map(state_sha256, here.directions)]
    print(f"the same bits                    {same}")


if __name__ == "__main__":
    main()
