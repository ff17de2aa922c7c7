import pytest
import torch
from leaving import leave
from loaded_processes import in_two_ranks
from runs import SmallNetwork, assert_holds, batches, names, seeded, train
from torch import distributed, nn

from collectors.model.model import Model
from collectors.networks.readers import describe_network
from collectors.recording.summary_collector import SummaryCollector
from collectors.run_directory import RunDirectory

pytestmark = pytest.mark.slow


def train_in_part(rank, folder):
    """One of two real processes that train one network together."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    landscape = {"intervals": [range(5)]}
    # Ranks start from different weights and see different data: only synchronized gradients keep them together.
    network = seeded(SmallNetwork, rank)
    wrapped = nn.parallel.DistributedDataParallel(network)
    data = batches(4, seed=rank)
    with SummaryCollector(f"{folder}/loop", collect_landscape=landscape).watch(wrapped) as run:
        steps, _ = train(wrapped, run, epochs=1, data=data)
    torch.save(steps, f"{folder}/loop_{rank}.pt")

    # Each rank names a directory of its own, so that a second writer would be seen.
    wrapped = nn.parallel.DistributedDataParallel(seeded(SmallNetwork))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    collector = SummaryCollector(f"{folder}/model_{rank}", collect_landscape=landscape)
    Model(wrapped, nn.CrossEntropyLoss(), optimizer).train(1, data, collector)
    distributed.barrier()
    leave()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    codes, printed = in_two_ranks(train_in_part, folder)
    assert codes == [0, 0], printed
    return folder


def test_only_the_first_rank_writes(trained):
    assert {"loop", "model_0"} <= set(names(trained))
    assert "model_1" not in names(trained)
    for name in ("loop", "model_0"):
        assert names(trained / name / "ckpt_dir") == [
            *(f"SmallNetwork_{number}_step.safetensors" for number in range(5)),
            "train_metadata.json",
        ]


def test_checkpoints_are_those_of_the_network_inside_the_wrapper(trained):
    run = RunDirectory(trained / "loop")
    assert run.metadata.network["name"] == "SmallNetwork"
    assert not [name for name in run.metadata.network["trainable"] if name.startswith("module.")]
    steps = torch.load(trained / "loop_0.pt", weights_only=True)
    for number in range(5):
        expected = {name.removeprefix("module."): tensor for name, tensor in steps[number].items()}
        assert_holds(run.checkpoint(number, describe_network(SmallNetwork())), expected)
    # The ranks trained together.
    steps = [torch.load(trained / f"loop_{rank}.pt", weights_only=True)[4] for rank in range(2)]
    for name, _ in SmallNetwork().named_parameters():
        assert torch.equal(steps[0][f"module.{name}"], steps[1][f"module.{name}"])
