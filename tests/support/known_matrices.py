"""Symmetric matrices with known spectra, as what curvature is measured of."""

import numpy as np

from workers.curvature.products import Layout, Products, ShareProducts


class MatrixShares(ShareProducts):
    """A loss of half w'Aw at w, for a symmetric A; the first share holds everything, and the others are empty."""

    def __init__(self, matrix, dtype="float64"):
        self.matrix = np.asarray(matrix, np.float64)
        sizes = (3, len(self.matrix) - 3)
        self._layout = Layout(("weight", "bias"), tuple((size,) for size in sizes), dtype)
        self.at = np.ones(len(self.matrix))

    @property
    def layout(self):
        return self._layout

    @property
    def notes(self):
        return ()

    @property
    def memory_for_vectors(self):
        return float("inf")

    def samples_in(self, share):
        return int(share == 0)

    def move(self, parameters, buffers):
        self.at = np.concatenate([parameters[name].ravel() for name in self._layout.names])

    def loss(self, share):
        return (0.5 * self.at @ self.matrix @ self.at, None) if share == 0 else (0.0, None)

    def gradient(self, share):
        return self.matrix @ self.at if share == 0 else np.zeros(len(self.at))

    def product(self, vector, share, *, few=0):
        if share:
            return np.zeros(len(self.at))
        # As a network of this precision would give it.
        return (self.matrix @ vector.astype(np.float64)).astype(self._layout.dtype).astype(np.float64)

    def close(self):
        pass


def rotated(values, seed=0):
    """Returns a matrix with these eigenvalues, in directions that no coordinate knows."""
    values = np.asarray(values, np.float64)
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    return (turn * values) @ turn.T


def products_of(values, dtype="float64", seed=0):
    return Products(MatrixShares(rotated(values, seed), dtype))
