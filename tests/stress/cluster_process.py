"""A Ray cluster of several nodes on this machine, which says its address and adds and removes nodes on command.

Started by ``clusters.py``; reads "add" and "remove" from its standard input and answers each with a line.
"""

import json
import sys

from ray.cluster_utils import Cluster


def main():
    settings = json.loads(sys.argv[1])
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": settings["cpus"], "include_dashboard": False, "include_log_monitor": False},
    )
    node = {"num_cpus": settings["cpus"], "include_log_monitor": False}
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
