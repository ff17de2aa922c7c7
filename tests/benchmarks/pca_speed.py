"""Principal directions of a trajectory that is streamed from checkpoint files, against scikit-learn in memory.

Run it by hand: ``python tests/benchmarks/pca_speed.py``. The goal is 0.8 GB/s for each of the two passes over files
that the operating system holds in memory, on two cores. scikit-learn is given the stacked matrix, whose reading is
not counted; we read the files twice, and never hold more than blocks of 64 MiB.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from big_models import LAYERS, write_trajectory
from move_cost import seconds
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from collectors.networks.weight_space import State, WeightSpace
from collectors.weights.safetensors_file import CheckpointFile
from landscape.planes.passes import HERE, shards_of
from landscape.planes.pca import _gram_of_shard, principal_directions


def stacked(files: list[CheckpointFile]) -> Any:
    """Returns all checkpoints as one matrix, shape (checkpoints, elements)."""
    return np.stack([np.concatenate([file.read(name).ravel() for name in file.shapes]) for file in files])


def alignment(ours: State, theirs: Any, space: WeightSpace) -> float:
    """Returns the cosine between a direction of ours and one of scikit-learn's."""
    flat = np.concatenate([ours[tensor.name].reshape(-1) for tensor in space.trainable]).astype(np.float64)
    return float(flat @ theirs / np.linalg.norm(theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        width = round((options.elements / LAYERS) ** 0.5)
        files, space = write_trajectory(options.checkpoints, width, Path(folder))
        gigabytes = 4e-9 * options.checkpoints * space.dimension
        for file in files:
            file.sha256()  # from here on, the operating system holds the files
        both = seconds(lambda: principal_directions(files, space, centering="mean"), options.repeats)
        with threadpool_limits(1, "blas"):
            parts = [(shard, "none") for shard in shards_of(space)]
            gram = seconds(lambda: list(HERE.each(_gram_of_shard, files, parts)), options.repeats)
        default = seconds(lambda: principal_directions(files, space), options.repeats)
        found = principal_directions(files, space, centering="mean")
        matrix = stacked(files)
        peer = PCA(2, svd_solver="full")
        reference = seconds(lambda: peer.fit(matrix), options.repeats)
        cosine = alignment(found.directions[0], peer.components_[0].astype(np.float64), space)
    what = f"{options.checkpoints} checkpoints of {1e-6 * space.dimension:.0f} M float32 parameters"
    print(f"{what} ({gigabytes:.1f} GB)")
    print(f"scikit-learn, the matrix in memory   {reference:7.2f} s")
    print(f'ours, the same (centering="mean")     {both:7.2f} s   {2 * gigabytes / both:5.2f} GB/s per pass')
    print(f"ours, the default (no centering)     {default:7.2f} s   {2 * gigabytes / default:5.2f} GB/s per pass")
    print(f"  of which the Gram matrix           {gram:7.2f} s   {gigabytes / gram:5.2f} GB/s")
    print(f"scikit-learn's time over ours        {reference / both:7.2f}     (first directions: cosine {cosine:.6f})")


if __name__ == "__main__":
    main()
