"""Two real processes divide one network; what is collected is what PyTorch gathers, and one process collects."""

import re

import numpy as np
import pytest
import torch
from event_reading import accumulated
from runs import assert_holds, names, seeded
from sharded_training import CASES, LAYERS, STEPS, CountingNetwork, together, tokens, train, watched
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from collectors import import_checkpoints
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from landscape.summary_landscape import SummaryLandscape

pytestmark = pytest.mark.slow
FIRST, OTHERS = "fsdp2", [case for case in CASES if case != "fsdp2"]


def run_well(folder, *cases):
    codes, output = together(folder, *cases)
    assert codes == [0, 0], output
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    # The peak comes first, as nothing may have taken memory before.
    return run_well(
        tmp_path_factory.mktemp("first"), "peak_of_gathering", FIRST, "out_of_disk", "distributed_checkpoints"
    )


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return run_well(
        tmp_path_factory.mktemp("others"),
        *OTHERS,
        "with_records",
        "records_alone",
        "after_evaluation",
        "fsdp2",
        "refused",
        "documented",
        "interrupted",
        "within_an_epoch",
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    network = seeded(CountingNetwork)
    with watched(folder, network) as run:
        train(network, run, tokens())
    return folder


def whole(states):
    """Returns what PyTorch gathered without the second name of the tied weights."""
    return {name: tensor for name, tensor in states.items() if name != "head.weight"}


def check_case(folder, alone, case):
    assert names(folder).count(f"{case}_1") == 0  # a directory that rank 1 made
    run, reference = RunDirectory(folder / f"{case}_0"), RunDirectory(alone)
    network = CountingNetwork()
    if case == "fsdp1_flat":
        network.block.norm1.weight.requires_grad = True
    space = describe_network(network)
    expected = torch.load(folder / f"{case}_0.pt", weights_only=True)
    assert run.metadata.network["trainable"] == [tensor.name for tensor in space.trainable]
    assert run.metadata.network["name"] == "CountingNetwork"
    assert run.metadata.network["parameters"] == reference.metadata.network["parameters"]
    assert run.metadata.trained_to == STEPS
    assert sorted(run.metadata.files) == [*range(STEPS + 1)]
    for number in range(STEPS + 1):
        checkpoint, other = run.checkpoint(number, space), reference.checkpoint(number, space)
        assert_holds(checkpoint, whole(expected[number]))
        if case not in ("fsdp2_in_bfloat16", "fsdp1_flat"):
            for name in checkpoint.shapes:
                np.testing.assert_allclose(checkpoint.read(name), other.read(name), rtol=1e-6, atol=1e-6)


def test_fully_sharded_checkpoints_are_whole_and_those_of_one_process(first, alone):
    check_case(first, alone, FIRST)


def callback_fn():
    sequences = torch.cat(tokens())
    return nn.CrossEntropyLoss(), seeded(CountingNetwork), (sequences, sequences), {}


def test_the_landscape_is_that_of_one_process(first, alone, tmp_path):
    settings = {"landscape_size": 5, "num_samples": 20, "create_landscape": {"train": True, "result": False}}
    found = []
    for number, run in enumerate((first / "fsdp2_0", alone)):
        (landscape,) = SummaryLandscape(run).gen_landscapes_with_multi_process(
            callback_fn,
            collect_landscape=settings,
            device_ids=[0],
            output=str(tmp_path / str(number)),
            progress=False,
        )
        found.append(landscape)
    divided, reference = found
    np.testing.assert_allclose(divided.loss, reference.loss, rtol=1e-6)
    for name in ("x", "y"):
        mine, other = (getattr(item.checkpoints, name) for item in found)
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["fsdp2", "tensor_parallel"])
def test_the_parts_that_two_processes_save_are_imported_whole(first, tmp_path, name):
    folders = [first / f"parts_{name}_{number}" for number in range(3)]
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata"} <= set(names(folders[0]))
    run = import_checkpoints(tmp_path / "run", folders, numbers=[10, 20, 30], unit="step", network_name="Counting")
    space = describe_network(CountingNetwork())
    for number, folder in zip((10, 20, 30), folders, strict=True):
        checkpoint, states = run.checkpoint(number, space), torch.load(f"{folder}.pt", weights_only=True)
        assert_holds(checkpoint, whole(states))
        # PyTorch's own way back, which needs no process group either.
        dcp_to_torch_save(folder, tmp_path / "whole.pt")
        own = torch.load(tmp_path / "whole.pt", weights_only=True)["model"]
        assert_holds(run.checkpoint(number), own)


def test_a_write_that_fails_on_rank_0_is_raised_on_both(first):
    told = [(first / f"out_of_disk_{rank}.txt").read_text() for rank in range(2)]
    assert told[0] == told[1]
    assert told[0].startswith("CheckpointWriteError: a checkpoint could not be written to")


@pytest.mark.parametrize("case", OTHERS)
def test_every_way_to_divide_gives_whole_checkpoints(others, alone, case):
    check_case(others, alone, case)


def test_records_do_without_parameters(others):
    assert names(others / "records_0" / "ckpt_dir")[:3] == [
        f"CountingNetwork_{number}_step.safetensors" for number in range(3)
    ]
    for name in ("records_0", "alone_0"):
        assert accumulated(others / name).Tags()["scalars"] == ["loss/auto", "learning_rate/auto"]
    # Pieces of parameters are not recorded as parameters.
    tags = accumulated(others / "alone_0").Tags()
    assert not tags["histograms"]
    assert not tags["graph"]


def test_gathering_holds_one_parameter_beside_the_shards(first):
    peaks = [float(peak) for peak in (first / "peak_1.txt").read_text().split()]
    # Rank 0 gets a copy, this one none; PyTorch gathers with some room of its own.
    assert max(peaks) < 4 * LAYERS / 4, peaks


def test_an_evaluation_before_a_checkpoint_does_not_lower_its_precision(others):
    run = RunDirectory(others / "evaluated_0")
    state = torch.load(others / "evaluated_0.pt", weights_only=True)
    assert_holds(run.checkpoint(3, describe_network(CountingNetwork())), whole(state))


def test_what_is_refused_is_refused_on_every_rank(others):
    told = [(others / f"refused_{rank}.txt").read_text().splitlines() for rank in range(2)]
    assert told[0] == told[1]
    exists, inside = told[0]
    assert re.match("RunDirectoryError: .* already holds a run", exists)
    assert re.match("TypeError: network .* must be the FullyShardedDataParallel module", inside)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The folder of two trainings, of which each was resumed after another process was killed."""
    folder, space = tmp_path_factory.mktemp("resumed"), describe_network(CountingNetwork())
    for victim in (0, 1):
        codes, output = together(folder, f"killed-{victim}")
        assert (codes[victim], codes[1 - victim]) == (-9, 1), output
        run = RunDirectory(folder / f"killed_{victim}")
        assert {0, 1, 2} <= set(run.metadata.files) <= {0, 1, 2, 3}
        for number in run.metadata.files:
            run.checkpoint(number, space)  # checks its SHA-256
        if victim == 1:
            assert sorted(run.metadata.files) == [0, 1, 2, 3]
    return run_well(folder, "resumed-0", "resumed-1")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_leaves_a_whole_directory_that_resumes(resumed, alone, victim):
    space = describe_network(CountingNetwork())
    run, reference = RunDirectory(resumed / f"killed_{victim}"), RunDirectory(alone)
    assert sorted(run.metadata.files) == [*range(STEPS + 1)]
    last, expected = run.checkpoint(STEPS, space), reference.checkpoint(STEPS, space)
    for name in last.shapes:
        np.testing.assert_allclose(last.read(name), expected.read(name), rtol=1e-6, atol=1e-6)


def test_an_interrupt_of_both_processes_leaves_a_whole_directory(others):
    run = RunDirectory(others / "interrupted")
    assert sorted(run.metadata.files) == [0, 1, 2]
    assert run.metadata.trained_to is None


def test_a_resume_inside_an_epoch_keeps_the_checkpoints_of_the_epochs_before(others):
    before, after = torch.load(others / "epochs.pt", weights_only=True)
    assert sorted(before) == [0, 1, 2]
    assert sorted(after) == [0, 1, 2, 3]
    assert {number: after[number] for number in before} == before


def test_the_page_of_divided_networks_is_true(others):
    run = RunDirectory(others / "documented" / "run")
    assert sorted(run.metadata.files) == [0]
    assert run.metadata.network["name"] == "Blocks"
    assert sorted(run.checkpoint(0).shapes) == [
        f"blocks.{layer}.{name}" for layer in "01" for name in ("bias", "weight")
    ]
