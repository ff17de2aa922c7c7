"""Weights as one vector, and where they lie on a plane, by NumPy's own solver on all weights at once."""

import numpy as np


def flat(space, arrays):
    """Returns the trainable tensors of a mapping side by side, in float64."""
    return np.concatenate([np.asarray(arrays[tensor.name], float).reshape(-1) for tensor in space.trainable])


def least_squares(space, directions, origin, states):
    """Returns the states' coordinates, and their distances to the plane and to the origin."""
    basis = np.stack([flat(space, direction) for direction in directions], axis=1)
    differences = np.stack([flat(space, state) for state in states]) - flat(space, origin)
    found = np.linalg.lstsq(basis, differences.T, rcond=None)[0].T
    return found, np.linalg.norm(differences - found @ basis.T, axis=1), np.linalg.norm(differences, axis=1)
