import json
from pathlib import Path

import numpy as np
import pytest
import torch
from remote_stores import empty_memory
from runs import SmallNetwork, assert_holds, batches, collected, metadata_path, names, seeded, snapshot, train
from safetensors.numpy import load_file

from collectors import SummaryCollector
from collectors.errors import CheckpointError, RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from landscape import SummaryLandscape

FROZEN = ("0.weight", "0.bias")
FILE = "SmallNetwork_frozen.safetensors"


def frozen_network():
    network = seeded(SmallNetwork)
    network[0].requires_grad_(False)
    return network


@pytest.fixture
def run(tmp_path):
    return collected(tmp_path / "run", frozen_network())


def checkpoint_names(folder):
    return [name for name in names(folder) if name not in (FILE, "train_metadata.json")]


def test_they_are_saved_once(run):
    directory, steps, _ = run
    folder = directory.path / "ckpt_dir"
    assert sorted(load_file(folder / FILE)) == sorted(FROZEN)
    assert len(checkpoint_names(folder)) == 9
    for name in checkpoint_names(folder):
        assert not set(FROZEN) & set(load_file(folder / name)), name
    for number, state in steps.items():
        assert_holds(directory.checkpoint(number, describe_network(frozen_network())), state)
    block = directory.checkpoint(3).read_block("0.weight", 4, 9)
    np.testing.assert_array_equal(block, steps[3]["0.weight"].flatten()[4:9])
    # A run that replaces this one takes their file along.
    collected(directory.path, existing="overwrite")
    assert FILE not in names(folder)


@pytest.mark.parametrize(
    "interfere",
    [
        lambda network: network[0].requires_grad_(True),
        lambda network: network[0].weight.data[0, 0].fill_(torch.nan),
    ],
    ids=["thawed", "written past autograd"],
)
def test_what_moves_nevertheless_is_saved(tmp_path, interfere):
    network = frozen_network()
    collector = SummaryCollector(
        tmp_path, keep_default_action=False, collect_landscape={"unit": "epoch", "intervals": [range(4)]}
    )
    states = [snapshot(network)]
    with collector.watch(network) as run:
        for epoch in range(3):
            if epoch == 1:
                interfere(network)
            train(network, data=batches(), epochs=1)
            states.append(snapshot(network))
            run.end_epoch()
    directory = RunDirectory(tmp_path)
    for number, state in enumerate(states):
        assert_holds(directory.checkpoint(number), state)
        saved = load_file(tmp_path / "ckpt_dir" / f"SmallNetwork_{number}_epoch.safetensors")
        # A bias before BatchNorm has no gradient but rounding, which moves it on some processors only.
        moved = {name for name in FROZEN if not np.array_equal(state[name], states[0][name])}
        assert set(FROZEN) & set(saved) == moved
        assert ("0.weight" in moved) == (number >= 2)


def test_a_resumed_run_keeps_their_file(run, tmp_path):
    directory, steps, _ = run
    folder = directory.path / "ckpt_dir"
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    network = frozen_network()
    network.load_state_dict(steps[4])
    options = {"keep_default_action": False, "collect_landscape": {"intervals": [range(9)]}, "existing": "resume"}
    collector = SummaryCollector(directory.path, **options)
    with collector.watch(network, start_step=4, start_epoch=1, steps_per_epoch=4) as again:
        for _ in range(4):
            again.step()
    assert checkpoint_names(folder) == [f"SmallNetwork_{number}_step.safetensors" for number in range(9)]
    assert (folder / FILE).read_bytes() == before[FILE]
    assert "0.weight" not in load_file(folder / "SmallNetwork_5_step.safetensors")
    for number in range(5):
        name = f"SmallNetwork_{number}_step.safetensors"
        assert (folder / name).read_bytes() == before[name]
        assert_holds(RunDirectory(directory.path).checkpoint(number), steps[number])


@pytest.mark.filterwarnings("ignore:.*the later checkpoints in .* are removed")
def test_a_run_resumed_from_its_beginning_saves_them_anew(tmp_path):
    settings = {"unit": "epoch", "intervals": [range(1, 4)]}
    collected(tmp_path, frozen_network(), epochs=3, **settings)
    other = seeded(SmallNetwork, seed=1)
    other[0].requires_grad_(False)
    directory, _, epochs = collected(tmp_path, other, epochs=3, existing="resume", **settings)
    assert_holds(directory.checkpoint(3), epochs[3])
    assert load_file(tmp_path / "ckpt_dir" / FILE)["0.weight"].tobytes() == epochs[0]["0.weight"].numpy().tobytes()
    assert not set(FROZEN) & set(load_file(tmp_path / "ckpt_dir" / "SmallNetwork_3_epoch.safetensors"))


def test_a_run_behind_a_url():
    with empty_memory() as there:
        _, steps, _ = collected("memory://frozen/run", frozen_network())
        assert there.exists(f"/frozen/run/ckpt_dir/{FILE}")
        directory = RunDirectory("memory://frozen/run")
        for number in (0, 8):
            assert_holds(directory.checkpoint(number), steps[number])
        # The run directory that has the copies is gone before they are read.
        assert_holds(RunDirectory("memory://frozen/run").checkpoint(3), steps[3])


def link_out(path):
    elsewhere = path.parents[2] / "elsewhere"
    elsewhere.mkdir()
    path.symlink_to(path.rename(elsewhere / path.name))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (Path.unlink, "cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is not a whole safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\7"), "is not the file that training wrote"),
        (link_out, "links out of the run directory"),
    ],
)
def test_a_file_that_is_not_theirs(run, damage, text):
    directory, match = run[0], f"{FILE} {text}"
    damage(directory.path / "ckpt_dir" / FILE)
    with pytest.raises(CheckpointError, match=match):
        RunDirectory(directory.path).checkpoint(3)
    before = names(directory.path / "ckpt_dir")
    with pytest.raises(RunDirectoryError, match=f"cannot be resumed.*{match}"):
        collected(directory.path, frozen_network(), existing="resume", epochs=0)
    if damage is not Path.unlink:
        assert names(directory.path / "ckpt_dir") == before


def test_a_name_in_another_folder_counts_for_its_last_part(run):
    directory, steps, _ = run
    content = json.loads(metadata_path(directory.path).read_text())
    content["frozen"]["file"] = f"/elsewhere/{FILE}"
    metadata_path(directory.path).write_text(json.dumps(content))
    assert_holds(RunDirectory(directory.path).checkpoint(2), steps[2])


def test_the_landscape_is_that_of_whole_checkpoints(run, tmp_path):
    directory, steps, _ = run
    data = (torch.cat([inputs for inputs, _ in batches()]), torch.cat([targets for _, targets in batches()]))

    def callback_fn():
        return torch.nn.CrossEntropyLoss(), frozen_network(), data, {}

    settings = {"landscape_size": 5, "num_samples": 24, "create_landscape": {"train": True, "result": False}}
    (found,) = SummaryLandscape(directory.path).gen_landscapes_with_multi_process(
        callback_fn, collect_landscape=settings, device_ids=[0], progress=False
    )
    for number, loss in zip(found.checkpoints.number, found.checkpoints.metrics["loss"], strict=True):
        network = frozen_network()
        network.load_state_dict(steps[number])
        with torch.no_grad():
            assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(network.eval()(data[0]), data[1])))


def test_another_frozen_parameter_makes_another_landscape(tmp_path):
    first, _, _ = collected(tmp_path / "a", frozen_network())
    other = frozen_network()
    with torch.no_grad():
        other[0].bias += 1
    second, _, _ = collected(tmp_path / "b", other)
    files = [tmp_path / name / "ckpt_dir" / "SmallNetwork_0_step.safetensors" for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert first.checkpoint(0).sha256() != second.checkpoint(0).sha256()
