"""Minima and saddles of grids, beside gudhi's cubical complex.

Run it by hand: ``python tests/benchmarks/topology.py``. The goal is at most 1 s for 256 x 256 points, on one core. Each
of the three surfaces is a worst case of its own: noise has a minimum at every ninth point, a smooth surface long paths,
a tied one plateaus.
"""

import argparse

import gudhi
import numpy as np
from move_cost import seconds

from landscape.topology.merging import find_basins, merge


def surfaces(side: int) -> dict[str, np.ndarray]:
    """Returns grids by name, shape (side, side)."""
    generator, x = np.random.default_rng(0), np.linspace(-10, 10, side)
    smooth = np.cos(x) + np.cos(x)[:, None]
    return {
        "noise": generator.normal(size=(side, side)),
        "smooth": smooth,
        "tied": np.round(4 * smooth + generator.normal(size=(side, side))) / 4,
    }


def ours(values: np.ndarray) -> int:
    """Returns how many minima there are, after building the whole tree."""
    basins = find_basins(values, np.zeros(values.shape))
    merge(basins, np.ones(len(basins.minimum), bool))
    return len(basins.minimum)


def theirs(values: np.ndarray) -> int:
    """Returns how many pairs gudhi finds."""
    cells = gudhi.CubicalComplex(top_dimensional_cells=values)
    cells.compute_persistence()
    return len(cells.persistence_intervals_in_dimension(0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sides", type=int, nargs="+", default=[51, 129, 256, 512])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{'surface':<8} {'points':>12} {'minima':>8} {'ours (s)':>10} {'gudhi (s)':>10}")
    for side in options.sides:
        for name, values in surfaces(side).items():
            taken = [seconds(lambda run=run, grid=values: run(grid), options.repeats) for run in (ours, theirs)]
            print(f"{name:<8} {side:>5} x {side:<4} {ours(values):>8} {taken[0]:>10.3f} {taken[1]:>10.3f}")


if __name__ == "__main__":
    main()
