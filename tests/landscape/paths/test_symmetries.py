"""The groups of units that are read off graphs: which there are, and that they change no outputs."""

import numpy as np
import pytest
import torch
from permutable_networks import NETWORKS

from collectors.networks.readers import describe_network, read_network
from landscape.paths.graph_symmetries import find_groups
from landscape.paths.permutations import permuted
from landscape.paths.same_outputs import OutputCheck


def with_own_statistics(network):
    """Gives buffers and the parameters of normalization layers values that differ from unit to unit."""
    generator = torch.Generator().manual_seed(3)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.is_floating_point():
            tensor.data += 0.3 * torch.rand(tensor.shape, generator=generator)
    return network.double()


@pytest.mark.parametrize("name", NETWORKS)
def test_groups_are_found_and_change_nothing(name):
    build, inputs, sizes, unknown = NETWORKS[name]
    torch.manual_seed(0)
    network, example = with_own_statistics(build()), inputs()
    space, state = describe_network(network), read_network(network)
    check = OutputCheck(network, example, state)
    groups, not_known = find_groups(check.network, check.example, space)
    assert sorted(group.size for group in groups) == sizes, [str(group) for group in groups]
    assert not_known == unknown
    rng = np.random.default_rng(0)
    for group in groups:
        moved = permuted(state, [group.permuted_by(np.roll(np.arange(group.size), 1))])
        assert check.difference(moved) < 1e-11, str(group)
        # The check itself sees when one axis does not follow.
        for axis in group.axes:
            if not axis.name.endswith(".bias"):
                partly = axis.taken(state[axis.name], np.roll(np.arange(group.size), 1))
                assert check.difference({**state, axis.name: partly}) > 1e-7, str(axis)
    together = [group.permuted_by(rng.permutation(group.size)) for group in groups]
    assert check.difference(permuted(state, together)) < 1e-11
