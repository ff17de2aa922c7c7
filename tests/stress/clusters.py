"""Clusters in a process of their own, which is this file, gone without a trace when the trial ends."""

import contextlib
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from ray_environment import AS_OTHERS, FOLDER, without_ray
from surveys import IMPORTS, MARK, end_marked, marked


class SmallCluster:
    """Nodes on this machine, whose CPUs are only names."""

    def __init__(self, nodes, cpus=1):
        self._mark = uuid.uuid4().hex
        # Unix socket paths may have 107 bytes, which pytest's own folders would exceed.
        self._folder = Path(tempfile.mkdtemp(prefix="stress-", dir="/tmp"))
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        variables = without_ray() | AS_OTHERS | self.environment | {MARK: self._mark, "RAY_USAGE_STATS_ENABLED": "0"}
        variables |= {FOLDER: str(self._folder), "PYTHONPATH": IMPORTS}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps({"nodes": nodes, "cpus": cpus})],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise AssertionError("the cluster did not start")

    def raylets(self):
        return {process.pid for process in marked(self._mark) if process.name() == "raylet"}

    def add_node(self):
        self._command("add")

    def remove_node(self):
        """Kills the newest node's processes."""
        self._command("remove")

    def close(self):
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGKILL)
        end_marked(self._mark)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _command(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise AssertionError(f"the cluster did not {word} a node")


def main():
    """Says the cluster's address, and adds and removes nodes on command: answers each line of its input with one."""
    from ray.cluster_utils import Cluster

    settings = json.loads(sys.argv[1])
    node = {"num_cpus": settings["cpus"], "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    nodes = [cluster.add_node(**node) for _ in range(settings["nodes"] - 1)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line == "add\n":
            nodes.append(cluster.add_node(**node))
        elif line == "remove\n":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
