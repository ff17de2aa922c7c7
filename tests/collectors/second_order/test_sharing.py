"""Two real processes with gloo end where one with all samples does."""

import pytest
import torch
from leaving import leave
from loaded_processes import in_two_ranks
from thor_networks import batches, mixed, train
from torch import distributed, nn

from collectors import thor

SETTINGS = {"frequency": 2, "enable_clip_grad": True}


class Sometimes(nn.Module):
    """A network that uses one of its layers for some batches only."""

    def __init__(self):
        super().__init__()
        self.always = nn.Linear(6, 5)
        self.seldom = nn.Linear(6, 5)

    def forward(self, inputs, both):
        return self.always(inputs) + self.seldom(inputs) if both else self.always(inputs)


def sometimes():
    torch.manual_seed(0)
    return Sometimes(), torch.randn(12, 6), torch.randint(0, 5, (12,))


def half(tensor, rank):
    return tensor.chunk(2)[rank]


def process(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        network = nn.parallel.DistributedDataParallel(mixed(seed=0))
        optimizer = thor(network, 0.01, 0.02, 0.9, split_indices=[0, 2], **SETTINGS)
        data = [
            ((half(images, rank), half(words, rank)), half(targets, rank)) for (images, words), targets in batches(5)
        ]
        train(network, optimizer, data)
        torch.save(network.module.state_dict(), f"{folder}/weights_{rank}.pt")

        network, inputs, targets = sometimes()
        parallel = nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
        optimizer = thor(parallel, 0.1, 0.1, 0.0, frequency=2)
        outputs = parallel(half(inputs, rank), rank == 0)
        nn.functional.cross_entropy(outputs, half(targets, rank)).backward()
        optimizer.step()
        inverses = {name: optimizer.state[network.get_submodule(name).weight] for name in ("always", "seldom")}
        torch.save(inverses, f"{folder}/inverses_{rank}.pt")
    finally:
        distributed.destroy_process_group()
    leave()


@pytest.mark.slow
def test_two_processes_share_what_their_layers_record(tmp_path):
    codes, printed = in_two_ranks(process, tmp_path)
    assert codes == [0, 0], printed
    network = mixed(seed=0)
    train(network, thor(network, 0.01, 0.02, 0.9, **SETTINGS), batches(5))
    for rank in (0, 1):
        found = torch.load(tmp_path / f"weights_{rank}.pt", weights_only=True)
        torch.testing.assert_close(found, network.state_dict(), rtol=1e-4, atol=1e-5)

    # The layer that the second process did not use has the factors of the first one's samples.
    network, inputs, targets = sometimes()
    optimizer = thor(network, 0.1, 0.1, 0.0, frequency=2)
    nn.functional.cross_entropy(network(half(inputs, 0), True), half(targets, 0)).backward()
    optimizer.step()
    found = [torch.load(tmp_path / f"inverses_{rank}.pt", weights_only=True) for rank in (0, 1)]
    for name in ("a_inverse", "g_inverse"):
        expected = optimizer.state[network.seldom.weight][name]
        for inverses in found:
            torch.testing.assert_close(inverses["seldom"][name], expected)
            assert torch.equal(inverses["always"][name], found[0]["always"][name])
        assert not torch.allclose(found[0]["always"][name], expected)
