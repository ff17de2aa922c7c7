"""What a training finds in its directory: checkpoints that a killed one did not list, leftovers, links, other files."""

import errno
import io
import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from own_processes import ended_process
from runs import (
    SmallNetwork,
    assert_holds,
    batches,
    collected,
    contents,
    metadata_path,
    names,
    seeded,
    snapshot,
    writer,
)
from safetensors.numpy import save
from waiting import wait_until

from collectors import (
    Callback,
    CheckpointConfig,
    Model,
    ModelCheckpoint,
    SummaryCollector,
    import_checkpoints,
    load_checkpoint,
)
from collectors.errors import RunDirectoryError
from collectors.files import locks
from collectors.files.remote_path import RemotePath
from collectors.networks.readers import describe_network, read_network
from collectors.run_directory import RunDirectory
from collectors.run_directory.directory import CheckpointFolder
from collectors.run_directory.settings import LandscapeSettings
from collectors.run_directory.writer import RunWriter
from collectors.weights.safetensors_file import file_sha256


def name_of(number, network="SmallNetwork"):
    return f"{network}_{number}_step.safetensors"


def forget_all_after(directory, number):
    """Leaves the metadata as a training leaves it that is killed before it lists its last checkpoints."""
    content = json.loads(metadata_path(directory).read_text())
    for key in ("model_params_file_map", "sha256"):
        content[key] = {name: item for name, item in content[key].items() if int(name) <= number}
    if number < 0:
        content.pop("frozen", None)
    metadata_path(directory).write_text(json.dumps(content))


@pytest.fixture(params=["here", "behind a URL"])
def place(request, tmp_path, monkeypatch):
    """A folder, and the same folder as what a training is given."""
    monkeypatch.setattr(locks, "SETTLING_SECONDS", 0.0)
    folder = tmp_path / "run"
    return folder, folder if request.param == "here" else RemotePath(LocalFileSystem(), str(folder))


@pytest.mark.parametrize("listed", [-1, 2, 4])
@pytest.mark.parametrize("start", [0, 5, 8, 100])
@pytest.mark.filterwarnings('ignore:existing="resume", but training begins:UserWarning')
def test_a_resume_takes_in_whole_checkpoints_that_are_not_listed(place, listed, start):
    folder, given = place
    _, steps, _ = collected(folder)
    whole = contents(folder)
    forget_all_after(folder, listed)
    writer(given, existing="resume", start=start).close()
    run = RunDirectory(folder)
    assert sorted(run.metadata.files) == sorted(run.metadata.sha256) == list(range(min(start, 8) + 1))
    for number in run.metadata.files:
        assert_holds(run.checkpoint(number, describe_network(SmallNetwork())), steps[number])
    assert names(folder / "ckpt_dir") == sorted([*run.metadata.files.values(), "train_metadata.json"])
    assert all(contents(folder)[name] == whole[name] for name in run.metadata.files.values())


@pytest.mark.parametrize("listed", [-1, 3])
def test_with_frozen_parameters(place, listed):
    folder, given = place

    def frozen():
        network = seeded(SmallNetwork)
        network[0].weight.requires_grad_(False)
        return network

    _, steps, _ = collected(folder, frozen())
    forget_all_after(folder, listed)
    started = writer(given, frozen(), existing="resume", start=6)
    network = frozen()
    network.load_state_dict(steps[8])
    started.save(7, {name: tensor.numpy() for name, tensor in steps[7].items()})
    started.close()
    run = RunDirectory(folder)
    assert sorted(run.metadata.files) == list(range(8))
    for number in run.metadata.files:
        checkpoint = run.checkpoint(number, describe_network(frozen()))
        assert all(np.array_equal(checkpoint.read(name), value) for name, value in steps[number].items())
    assert "SmallNetwork_frozen.safetensors" in names(folder / "ckpt_dir")
    # Beyond the restart there is nothing to complete.
    forget_all_after(folder, -1)
    for number in range(8):
        (folder / "ckpt_dir" / name_of(number)).unlink()
    writer(given, frozen(), existing="resume").close()
    assert names(folder / "ckpt_dir") == ["train_metadata.json"]


def damaged(path):
    path.write_bytes(path.read_bytes()[:-1])


def linked(path):
    outside = path.parent.parent / "outside.safetensors"
    path.rename(outside)
    path.symlink_to(outside)


def of_another_shape(path):
    other = path.parent.parent / "other"
    collected(other, SmallNetwork(width=6), intervals=[[5, 6, 7]])
    path.unlink()
    (other / "ckpt_dir" / name_of(7)).rename(path)


@pytest.mark.parametrize("change", [damaged, linked, of_another_shape])
def test_what_is_not_taken_in(tmp_path, change):
    """Files that are not whole, lie elsewhere or do not fit stay as they are."""
    run, _, _ = collected(tmp_path)
    forget_all_after(tmp_path, 4)
    change(run.path / "ckpt_dir" / name_of(7))
    before = contents(tmp_path)
    writer(tmp_path, existing="resume", start=7).close()
    found = RunDirectory(tmp_path)
    assert sorted(found.metadata.files) == [0, 1, 2, 3, 4, 5, 6]
    assert contents(tmp_path)[name_of(7)] == before[name_of(7)]


def test_a_file_that_cannot_be_read_stops_the_resume(tmp_path, monkeypatch):
    collected(tmp_path)
    forget_all_after(tmp_path, 4)
    before = contents(tmp_path)
    original = io.FileIO

    def broken(path, *arguments):
        if str(path).endswith(name_of(6)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return original(path, *arguments)

    monkeypatch.setattr(io, "FileIO", broken)
    text = rf"cannot be used: .*{name_of(6)} cannot be read: Input/output err"
    for existing in ("resume", "overwrite"):
        with pytest.raises(RunDirectoryError, match=text):
            writer(tmp_path, existing=existing, start=8)
    monkeypatch.undo()
    assert contents(tmp_path) == before


def test_files_of_other_numbers_units_and_networks_are_not_taken_in(tmp_path):
    collected(tmp_path / "a", intervals=[range(9)])
    collected(tmp_path / "b", intervals=[range(3)], unit="epoch")

    collected(tmp_path / "c", type("OtherNetwork", (SmallNetwork,), {})(), intervals=[range(9)])
    collected(tmp_path / "d", intervals=[[2, 4, 6]])
    target = tmp_path / "d" / "ckpt_dir"
    foreign = {
        name_of(5): tmp_path / "a" / "ckpt_dir" / name_of(5),
        "SmallNetwork_2_epoch.safetensors": tmp_path / "b" / "ckpt_dir" / "SmallNetwork_2_epoch.safetensors",
        name_of(4, "OtherNetwork"): tmp_path / "c" / "ckpt_dir" / name_of(4, "OtherNetwork"),
    }
    for name, source in foreign.items():
        (target / name).write_bytes(source.read_bytes())
    (target / name_of(8)).write_bytes((target / name_of(6)).read_bytes())
    settings = LandscapeSettings(((2, 4, 6),))
    RunWriter(tmp_path / "d", settings, describe_network(SmallNetwork()), existing="resume", start=9).close()
    assert sorted(RunDirectory(tmp_path / "d").metadata.files) == [2, 4, 6]
    assert {*foreign, name_of(8)} < set(names(target))


def test_an_overwritten_run_leaves_nothing_that_could_pass_for_the_new_one(place):
    folder, given = place
    collected(folder)
    forget_all_after(folder, 4)
    (folder / "ckpt_dir" / "best.safetensors").write_bytes((folder / "ckpt_dir" / name_of(8)).read_bytes())
    writer(given, existing="overwrite").close()
    assert names(folder / "ckpt_dir") == ["best.safetensors", "train_metadata.json"]


@pytest.mark.parametrize("last", ["overwrite", "resume"])
def test_checkpoints_without_metadata_are_not_mixed_with_a_new_run(place, last):
    """An overwriting that was killed leaves such checkpoints too: a resume from the start begins it again."""
    folder, given = place
    collected(folder)
    metadata_path(folder).unlink()
    before = contents(folder)
    text = r"holds 9 checkpoints of SmallNetwork, such as SmallNetwork_0_step.safetensors, but no "
    text += r'train_metadata.json .*existing="overwrite"'
    for existing, start in (("error", 0), ("resume", 3)):
        with pytest.raises(RunDirectoryError, match=text):
            writer(given, existing=existing, start=start)
        assert contents(folder) == before
    writer(given, existing=last).close()
    assert names(folder / "ckpt_dir") == ["train_metadata.json"]


def test_a_resume_from_the_start_says_what_it_removes(tmp_path):
    collected(tmp_path)
    with pytest.raises(RunDirectoryError, match=r'existing="resume" and the step or epoch that training goes on from'):
        writer(tmp_path)
    with pytest.warns(UserWarning, match=r"training begins at step 0: the later checkpoints in .* are removed\. Where"):
        writer(tmp_path, existing="resume").close()
    # Nothing is left that would be removed.
    writer(tmp_path, existing="resume").close()
    assert sorted(RunDirectory(tmp_path).metadata.files) == [0]


@pytest.mark.parametrize("existing", ["error", "resume", "overwrite"])
def test_temporary_metadata_of_a_killed_start_is_removed(tmp_path, existing):
    """Killed between removing the old metadata and writing the new: no metadata, but its temporary sibling."""
    (tmp_path / "ckpt_dir").mkdir()
    (tmp_path / "ckpt_dir" / f".train_metadata.json.{ended_process()}.0123abcd.tmp").write_bytes(b"{")
    writer(tmp_path, existing=existing).close()
    assert names(tmp_path / "ckpt_dir") == ["train_metadata.json"]


class WaitForTheKill(Callback):
    def on_train_step_begin(self, run_context):
        # However late it comes.
        if run_context.original_args().cur_step_num == 4000:
            signal.pause()


def train_4000_steps(directory, callback, collector=SummaryCollector, resume_from=None, **options):
    network, landscape = seeded(SmallNetwork), {"intervals": [range(4001)]}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    collector = collector(directory, keep_default_action=False, collect_landscape=landscape, **options)
    saving = ModelCheckpoint("saved", directory / "saved", CheckpointConfig(5, keep_checkpoint_max=2))
    model = Model(network, torch.nn.CrossEntropyLoss(), optimizer)
    model.train(1, batches(4000), [callback, collector, saving], resume_from=resume_from)


def test_the_length_of_an_epoch_is_on_disk_before_the_checkpoint_of_its_end(tmp_path, monkeypatch):
    """A training that is killed then goes on at the right step; nothing else is written while it trains."""
    monkeypatch.setattr("collectors.run_directory.writer.METADATA_INTERVAL_SECONDS", 1e6)
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [range(4)], "unit": "epoch"})
    with collector.watch(SmallNetwork()) as run:
        for _ in range(4):
            run.step()
        run.end_epoch()
        wait_until((tmp_path / "ckpt_dir" / "SmallNetwork_1_epoch.safetensors").exists)
        metadata = RunDirectory(tmp_path).metadata
        assert (metadata.step_per_epoch, max(metadata.files)) == (4, 0)
        for _ in range(2):
            run.end_epoch()


@pytest.mark.slow
def test_a_killed_training_that_resumes_loses_no_checkpoint(tmp_path, monkeypatch):
    """The metadata lists nothing at all when the training is killed; all that it wrote is there after the resume."""
    directory = tmp_path / "run"
    monkeypatch.setattr("collectors.run_directory.writer.METADATA_INTERVAL_SECONDS", 1e6)
    torch.optim.SGD([torch.zeros(1)])  # it imports much of PyTorch, which the child inherits
    child = os.fork()
    if not child:
        try:
            train_4000_steps(directory, WaitForTheKill())
        finally:
            os._exit(1)
    try:
        wait_until((directory / "ckpt_dir" / name_of(12)).exists)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert RunDirectory(directory).metadata.files == {}
    written = {path.name: file_sha256(path) for path in (directory / "ckpt_dir").glob("SmallNetwork_*")}
    states = [(len(path.name), path.name, path) for path in (directory / "saved").glob("*.safetensors")]
    restart = max(states)[-1]
    step = int(restart.stem.rsplit("_", 1)[-1])
    assert step >= 5

    class StopAtOnce(SummaryCollector):
        def on_train_begin(self, run_context):
            super().on_train_begin(run_context)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train_4000_steps(directory, Callback(), StopAtOnce, restart, existing="resume")
    run = RunDirectory(directory)
    numbers = sorted(run.metadata.files)
    # The writer may have had up to three states in memory when the training was killed.
    missing = set(range(step + 1)) - set(numbers)
    assert missing <= set(range(step - 3, step))
    assert numbers[-1] == step
    assert all(written.get(run.metadata.files[number]) in (None, run.metadata.sha256[number]) for number in numbers)
    last = run.checkpoint(step, describe_network(SmallNetwork()))
    weights = load_checkpoint(restart).weights
    assert all(np.array_equal(last.read(name), weights[name]) for name in last.shapes)


def test_a_kill_while_the_restart_point_is_saved_again_leaves_it_readable(tmp_path, monkeypatch):
    collected(tmp_path / "run")
    original = CheckpointFolder.write_checkpoint

    def write(*arguments):
        digest = original(*arguments)
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
        return digest

    monkeypatch.setattr(CheckpointFolder, "write_checkpoint", write)
    other = seeded(SmallNetwork, 1)
    started = writer(tmp_path / "run", existing="resume", start=4)
    started.save(4, read_network(other))
    started.close()
    for name in ("killed", "run"):
        run = RunDirectory(tmp_path / name)
        assert sorted(run.metadata.files) == list(range(5))
        assert_holds(run.checkpoint(4), snapshot(other))


def test_a_linked_folder_of_checkpoints_is_not_followed_out_of_the_run(tmp_path):
    collected(tmp_path / "other")
    before = contents(tmp_path / "other")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ckpt_dir").symlink_to(tmp_path / "other" / "ckpt_dir")
    message = r"run/ckpt_dir links out of the run directory, where nothing is read or written\. Remove the link"
    with pytest.raises(RunDirectoryError, match=message):
        RunDirectory(tmp_path / "run")
    for existing in ("error", "resume", "overwrite"):
        with pytest.raises(RunDirectoryError, match=message):
            writer(tmp_path / "run", existing=existing, start=3)
    assert contents(tmp_path / "other") == before
    (tmp_path / "run" / "ckpt_dir").unlink()
    for target in ("../nowhere", "../run/ckpt_dir/x", str(tmp_path)):
        (tmp_path / "run" / "ckpt_dir").symlink_to(target)
        with pytest.raises(RunDirectoryError, match=r"links out of the run directory|cannot be made"):
            writer(tmp_path / "run")
        (tmp_path / "run" / "ckpt_dir").unlink()
    assert not (tmp_path / "nowhere").exists()


def test_a_link_inside_the_run_and_a_linked_run_are_followed(tmp_path):
    (tmp_path / "real" / "checkpoints").mkdir(parents=True)
    (tmp_path / "real" / "ckpt_dir").symlink_to("checkpoints")
    (tmp_path / "link").symlink_to("real")
    run, steps, _ = collected(tmp_path / "link")
    assert_holds(run.checkpoint(8), steps[8])
    assert name_of(8) in names(tmp_path / "real" / "checkpoints")


def test_a_resume_does_not_read_a_last_checkpoint_that_lies_elsewhere(tmp_path):
    collected(tmp_path / "run")
    path = tmp_path / "run" / "ckpt_dir" / name_of(3)
    path.rename(tmp_path / "outside.safetensors")
    path.symlink_to(tmp_path / "outside.safetensors")
    with pytest.raises(RunDirectoryError, match=r"cannot be resumed.*links out of the run directory"):
        writer(tmp_path / "run", existing="resume", start=3)


def test_an_import_replaces_no_run_of_a_training(tmp_path):
    collected(tmp_path / "run")
    kept = names(tmp_path / "run" / "ckpt_dir")
    other, _, _ = collected(tmp_path / "other")
    files = [other.checkpoint_path(number) for number in range(3)]
    with pytest.raises(RunDirectoryError, match=r"holds a run that no import wrote, and was left as it is"):
        import_checkpoints(tmp_path / "run", files, existing="overwrite")
    assert names(tmp_path / "run" / "ckpt_dir") == kept


@pytest.mark.parametrize("existing", ["error", "overwrite", "resume"])
@pytest.mark.parametrize(
    "content",
    [b"my notes " * 20, save({"weight": np.ones(3, np.float32)}), b"        {"],
    ids=["notes", "weights", "broken off"],
)
def test_what_has_the_name_of_a_checkpoint_stays(tmp_path, existing, content):
    collected(tmp_path / "run")
    folder = tmp_path / "run" / "ckpt_dir"
    (file,) = folder.glob("*_1_*.safetensors")
    (folder / "train_metadata.json").unlink()
    for path in folder.glob("*.safetensors"):
        path.unlink()
    file.write_bytes(content)
    if existing == "overwrite" and content.endswith(b"{"):
        collected(tmp_path / "run", existing=existing)
        assert len(file.read_bytes()) > 100
        return
    with pytest.raises(RunDirectoryError, match=rf"{file.name} has the name of a checkpoint that this run writes, but"):
        collected(tmp_path / "run", existing=existing)
    assert file.read_bytes() == content


@pytest.mark.parametrize("content", [b"my notes " * 20, save({"weight": np.ones(3, np.float32)})])
def test_a_resume_replaces_no_file_that_has_the_name_of_a_later_checkpoint(tmp_path, content):
    collected(tmp_path / "run")
    forget_all_after(tmp_path / "run", 5)
    folder = tmp_path / "run" / "ckpt_dir"
    (folder / name_of(7)).write_bytes(content)
    before = contents(tmp_path / "run")
    with pytest.raises(
        RunDirectoryError, match=rf"{name_of(7)} has the name of a checkpoint that this run writes, but"
    ):
        writer(tmp_path / "run", existing="resume", start=5)
    assert contents(tmp_path / "run") == before
    # Nothing writes 7 again.
    writer(tmp_path / "run", existing="resume", start=8).close()
    assert (folder / name_of(7)).read_bytes() == content
