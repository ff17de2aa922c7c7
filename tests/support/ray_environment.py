"""What Ray finds in the environment of a test."""

import os

FOLDER = "RAY_TMPDIR"
# With Ray's own niceness of 15, workers of a cluster get next to nothing of a core that another test uses.
# It starts a process for each core, of which a test uses two.
AS_OTHERS = {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}


def without_ray():
    """Returns this process's environment without Ray's variables, but for where its files lie."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or name == FOLDER}
