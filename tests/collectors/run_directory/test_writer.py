import contextlib
import json
import os
import resource
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from own_processes import ended_process
from runs import SmallNetwork, assert_holds, collected, contents, metadata_path, names, seeded, snapshot, writer
from torch import nn
from waiting import wait_until

from collectors import Callback, Model, SummaryCollector
from collectors.errors import CheckpointWriteError, RunDirectoryError
from collectors.networks.readers import describe_network, read_network
from collectors.run_directory import RunDirectory
from collectors.run_directory.settings import LandscapeSettings
from collectors.run_directory.writer import RunWriter


def test_a_directory_is_made_a_run_at_once_and_its_states_are_written_by_another_thread(tmp_path):
    before = threading.active_count()
    started = writer(tmp_path / "a" / "b")
    assert RunDirectory(tmp_path / "a" / "b").metadata.files == {}
    started.save(0, read_network(SmallNetwork()))
    assert threading.active_count() == before + 1
    started.close()
    started.close()
    assert threading.active_count() == before
    assert set(started._metadata.files) == {0}
    assert names(tmp_path / "a" / "b" / "ckpt_dir") == ["SmallNetwork_0_step.safetensors", "train_metadata.json"]


def test_damaged_metadata_is_an_error_in_every_mode_and_stays(tmp_path):
    collected(tmp_path)
    metadata_path(tmp_path).write_text("{")
    before = contents(tmp_path)
    for existing in ("error", "resume", "overwrite"):
        with pytest.raises(RunDirectoryError, match=r"already holds a run|is not valid JSON"):
            writer(tmp_path, existing=existing)
    assert contents(tmp_path) == before


def foreign_files(directory):
    """Files that a user or another program may have put there; all must survive."""
    names = [
        "notes.txt", "best.safetensors", "SmallNetwork_77_step.safetensors", "LeNet_1_step.ckpt",
        ".SmallNetwork_1_step.safetensors.backup.tmp", f".mine.{ended_process()}.deadbeef.tmp",
        f".SmallNetwork_1_step.safetensors.{os.getpid()}.deadbeef.tmp",
    ]  # fmt: skip
    for name in names:
        (directory / "ckpt_dir" / name).write_text("foreign")
    (directory / "ckpt_dir" / "folder").mkdir()
    (directory / "landscape.h5").write_text("foreign")
    return names


@pytest.mark.parametrize("existing", ["overwrite", "resume"])
def test_foreign_files_survive_and_leftovers_of_the_dead_do_not(tmp_path, existing):
    collected(tmp_path)
    foreign = foreign_files(tmp_path)
    for name in ("SmallNetwork_3_step.safetensors", "train_metadata.json"):
        (tmp_path / "ckpt_dir" / f".{name}.{ended_process()}.0123abcd.tmp").write_bytes(b"half")
    # What the map of a damaged or foreign directory may name.
    changed = json.loads(metadata_path(tmp_path).read_text())
    changed["model_params_file_map"].update({"97": "notes.txt", "98": "train_metadata.json", "99": "folder"})
    metadata_path(tmp_path).write_text(json.dumps(changed))
    writer(tmp_path, existing=existing, start=2).close()
    kept = [f"SmallNetwork_{number}_step.safetensors" for number in range(3)] if existing == "resume" else []
    assert names(tmp_path / "ckpt_dir") == sorted([*foreign, "folder", "train_metadata.json", *kept])
    assert all(contents_of == b"foreign" for name, contents_of in contents(tmp_path).items() if name in foreign)
    assert (tmp_path / "landscape.h5").read_text() == "foreign"


def test_overwriting_waits_for_the_training_to_begin(tmp_path):
    collected(tmp_path)
    before = contents(tmp_path)
    SummaryCollector(tmp_path, collect_landscape={"intervals": [range(9)]}, existing="overwrite").watch(SmallNetwork())
    assert contents(tmp_path) == before


def test_links_are_removed_and_not_what_they_point_to(tmp_path):
    collected(tmp_path / "run")
    outside = tmp_path / "outside.safetensors"
    link = tmp_path / "run" / "ckpt_dir" / "SmallNetwork_5_step.safetensors"
    link.rename(outside)
    link.symlink_to(outside)
    writer(tmp_path / "run", existing="overwrite").close()
    assert names(tmp_path / "run" / "ckpt_dir") == ["train_metadata.json"]
    assert outside.exists()


@pytest.mark.parametrize("changes", [{"intervals": [range(8)]}, {"create_landscape": {"train": False}}])
def test_resuming_with_other_settings(tmp_path, changes):
    collected(tmp_path)
    before = contents(tmp_path)
    other = LandscapeSettings.from_dict({"intervals": [range(9)], **changes})
    with pytest.raises(RunDirectoryError, match=r"cannot be resumed: it was collected with Landsc.*now it is"):
        RunWriter(tmp_path, other, describe_network(SmallNetwork()), existing="resume", start=3)
    assert contents(tmp_path) == before


def frozen():
    network = SmallNetwork()
    network[0].weight.requires_grad_(False)
    return network


class Folded(SmallNetwork):
    """As many parameters under the same names, in other shapes."""

    def __init__(self):
        super().__init__()
        self[0].weight = nn.Parameter(torch.zeros(3, 5))


Folded.__name__ = "SmallNetwork"


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (type("Renamed", (SmallNetwork,), {}), "it holds the network .*'SmallNetwork'.*now it is .*'Renamed'"),
        (lambda: SmallNetwork(width=6), "cannot be resumed: it holds the network"),
        (frozen, r"'SmallNetwork' with 42 parameters \(trained there alone: '0.weight'\), now it is .* with 42"),
        (Folded, r"does not fit the network: .*\n  0.weight: the network has \(3, 5\), found \(5, 3\)"),
    ],
)
def test_resuming_with_another_network(tmp_path, build, match):
    collected(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RunDirectoryError, match=match):
        writer(tmp_path, build(), existing="resume", start=3)
    assert contents(tmp_path) == before


def test_resuming_twice_and_beyond_the_end_changes_nothing(tmp_path):
    collected(tmp_path)
    before = contents(tmp_path)
    for _ in range(2):
        writer(tmp_path, existing="resume", start=100).finish(8, None, trained_to=8)
    assert contents(tmp_path) == before


def test_the_metadata_follows_while_training_goes_on_and_names_whole_files(tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.run_directory.writer.METADATA_INTERVAL_SECONDS", 0.0)
    network = SmallNetwork()
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [range(20)]})
    with collector.watch(network) as run:
        for step in range(1, 20):
            network[0].weight.data.fill_(step)
            run.step()
            found = RunDirectory(tmp_path)
            numbers = found.present_numbers
            assert numbers == sorted(found.metadata.files) == list(range(len(numbers)))
            if len(numbers) > 1:
                assert np.all(found.checkpoint(numbers[-1]).read("0.weight") == numbers[-1])
        wait_until(lambda: len(RunDirectory(tmp_path).metadata.files) == 20, what="all of them in the metadata")


def test_names_of_files_are_safe_and_short_enough(tmp_path):
    network = type("../Größe <1>" + "ü" * 300, (nn.Linear,), {})(2, 2)
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [[0, 1, 10**17]]})
    with pytest.warns(UserWarning, match="without saving"), collector.watch(network) as run:
        run.step()
    run = RunDirectory(tmp_path)
    assert run.metadata.network["name"] == type(network).__name__
    assert run.metadata.files[1].startswith(".._Größe__1_ü")
    run.checkpoint(1, describe_network(network))
    assert run.checkpoint(1).metadata["network"] == type(network).__name__


@contextlib.contextmanager
def small_disk(place, megabytes=1):
    """A real file system that is soon full."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def check_prefix(directory, network, steps):
    """Asserts that a directory holds whole checkpoints of the first steps; returns how many."""
    run = RunDirectory(directory)
    numbers = sorted(run.metadata.files)
    assert numbers == list(range(len(numbers)))
    for number in numbers:
        assert_holds(run.checkpoint(number, describe_network(network)), steps[number])
    assert not [name for name in names(directory / "ckpt_dir") if name.endswith(".tmp")]
    return len(numbers)


def test_a_full_disk_stops_training_and_a_resume_goes_on(tmp_path):
    with small_disk(tmp_path / "disk", megabytes=3) as disk:
        (disk / "filler").write_bytes(bytes(2 * 2**20))
        directory = disk / "run"
        network = SmallNetwork(width=8000)  # about 0.25 MiB
        states = {}
        landscape = {"intervals": [range(9)]}
        run = SummaryCollector(directory, collect_landscape=landscape).watch(network)
        with pytest.raises(CheckpointWriteError, match=r"could not be written .*No space left.*free some space") as raised:  # fmt: skip # noqa: E501
            remembering(network, run, states)
        assert "The landscape collector failed as well" not in "".join(getattr(raised.value, "__notes__", []))
        assert "No space left" in str(raised.value.__cause__)
        saved = check_prefix(directory, network, states)
        assert 1 <= saved < 9
        (disk / "filler").unlink()
        restart = saved - 1
        network.load_state_dict(states[restart])
        again = SummaryCollector(directory, collect_landscape=landscape, existing="resume")
        remembering(network, again.watch(network, start_step=restart), states, restart)
        assert check_prefix(directory, network, states) == 9


def remembering(network, run, states, step=0):
    """Moves the network up to step 8, keeping every state."""
    states[step] = snapshot(network)
    with run:
        for number in range(step + 1, 9):
            with torch.no_grad():
                for tensor in network.parameters():
                    tensor.add_(0.125)
            states[number] = snapshot(network)
            run.step()


@contextlib.contextmanager
def largest_file(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class LimitAt(Callback):
    """From one step on, the system refuses files of the checkpoint's size."""

    def __init__(self, step):
        self.step, self.states, self.stack = step, {}, contextlib.ExitStack()

    def on_train_begin(self, run_context):
        params = run_context.original_args()
        self.states[params.cur_step_num] = snapshot(params.network)

    on_train_step_end = on_train_begin

    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num == self.step:
            wait_until(lambda: len(list(Path(self.folder).glob("Small*"))) >= self.step, what="earlier checkpoints")
            self.stack.enter_context(largest_file(50_000))


@pytest.mark.parametrize("last", [8, 4])
def test_a_refused_write_stops_a_model_also_at_its_end(tmp_path, last):
    """At the last step, nothing but the end of training can still report the failure."""
    network = seeded(lambda: SmallNetwork(width=3000))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    limit = LimitAt(4)
    limit.folder = tmp_path / "ckpt_dir"
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [range(last + 1)]})
    data = [(torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))] * last
    with limit.stack, pytest.raises(CheckpointWriteError, match="File too large") as raised:
        Model(network, nn.CrossEntropyLoss(), optimizer).train(1, data, [limit, collector])
    assert "failed as well" not in "".join(getattr(raised.value, "__notes__", []))
    assert check_prefix(tmp_path, network, limit.states) == 4


def test_another_error_is_not_hidden_by_a_failed_write(tmp_path):
    network = SmallNetwork(width=3000)
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [range(3)]})
    with largest_file(50_000), pytest.raises(ArithmeticError, match="the loop's own") as raised:
        run_and_fail(collector.watch(network), ArithmeticError("the loop's own"))
    assert any("a checkpoint could not be written" in note for note in raised.value.__notes__)


def run_and_fail(run, error):
    with run:
        raise error


def test_nothing_more_is_written_after_a_failure(tmp_path):
    network = SmallNetwork(width=3000)
    started = writer(tmp_path, network)
    with largest_file(50_000):
        with contextlib.suppress(CheckpointWriteError):
            for number in range(9):
                started.save(number, read_network(network))
        with pytest.raises(CheckpointWriteError, match="File too large"):
            started.close()
    with pytest.raises(CheckpointWriteError, match="File too large"):
        started.save(8, read_network(network))
    assert names(tmp_path / "ckpt_dir") == ["train_metadata.json"]
    assert RunDirectory(tmp_path).metadata.files == {}


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "ckpt_dir").write_text("a file")
    with pytest.raises(RunDirectoryError, match=r"run directory .* cannot be made: File exists. Choose a directory in"):
        collected(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"run directory /proc/run cannot be made: No such file or directory"):
        collected("/proc/run")


def test_of_long_settings_a_refused_resume_shows_what_differs(tmp_path):
    many = LandscapeSettings(intervals=(tuple(range(0, 100_000, 10)),))
    RunWriter(tmp_path, many, describe_network(SmallNetwork())).close()
    with pytest.raises(RunDirectoryError) as caught:
        RunWriter(tmp_path, replace(many, num_samples=7), describe_network(SmallNetwork()), existing="resume", start=1)
    assert "collected with LandscapeSettings(num_samples=2048), now it is LandscapeSettings(num_samples=7)" in str(
        caught.value
    )
    assert len(str(caught.value)) < 500
