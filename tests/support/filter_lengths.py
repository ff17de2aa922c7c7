"""The oracle of filter normalization: which weights feed an output is what the layer itself computes."""

import numpy as np
import pytest

from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import MemoryState
from landscape.planes.directions import random_direction


def assert_as_long_as_the_weights_of_each_output(network, name, outputs_of):
    """Checks a random direction against the weights that feed each output of a layer, found by trying each weight.

    ``outputs_of`` goes from values of the kernel to the layer's outputs, shape (outputs, values of each).
    """
    state = read_network(network)
    direction = random_direction(describe_network(network), MemoryState(state), seed=0, index=0)[name]
    kernel = state[name]
    fed = []
    for index in range(kernel.size):
        one = np.zeros(kernel.size, kernel.dtype)
        one[index] = 1
        (outputs,) = np.nonzero(np.any(outputs_of(one.reshape(kernel.shape)) != 0, axis=1))
        assert len(outputs) == 1
        fed.append(outputs[0])
    for output in set(fed):
        own = np.array(fed) == output
        length = np.linalg.norm(direction.reshape(-1)[own].astype(np.float64))
        assert length == pytest.approx(np.linalg.norm(kernel.reshape(-1)[own].astype(np.float64)), rel=1e-5)
