"""The groups of units that are read off graphs: which there are, and that they change no outputs."""

import numpy as np
import pytest
import torch
from permutable_networks import NETWORKS, with_own_statistics

from collectors.networks.readers import describe_network, read_network
from landscape.paths.graph_symmetries import OutputCheck, find_groups
from landscape.paths.matching import permuted


@pytest.mark.parametrize("name", NETWORKS)
def test_groups_are_found_and_change_nothing(name):
    build, inputs, sizes, unknown = NETWORKS[name]
    torch.manual_seed(0)
    network, example = with_own_statistics(build()), inputs()
    space, state = describe_network(network), read_network(network)
    check = OutputCheck(network, example, state)
    groups, not_known = find_groups(check.network, check.example, space)
    assert sorted(group.permutation.shape for group in groups) == sizes, [str(group) for group in groups]
    assert not_known == unknown
    rng = np.random.default_rng(0)
    for group in groups:
        order = np.roll(group.permutation, 1, -1)
        moved = permuted(state, [group.permuted_by(order)])
        assert check.difference(moved) < 1e-11, str(group)
        # The check itself sees when one axis does not follow.
        for axis in group.axes:
            if not axis.name.endswith(".bias"):
                partly = axis.permute(state[axis.name], order)
                assert check.difference({**state, axis.name: partly}) > 1e-7, str(axis)
    together = [group.permuted_by(rng.permuted(group.permutation, axis=-1)) for group in groups]
    assert check.difference(permuted(state, together)) < 1e-11
