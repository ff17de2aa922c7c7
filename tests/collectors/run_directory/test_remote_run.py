"""Run directories behind fsspec URLs: read in ranges or through bounded copies, never outside of themselves."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from own_processes import ended_process
from remote_stores import empty_memory, temporary
from runs import SmallNetwork, assert_holds, collected
from torch import nn

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files import places as run_files
from collectors.files.places import check_directory, is_url
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory

SPACE = describe_network(SmallNetwork())


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return collected(tmp_path_factory.mktemp("run"), intervals=[range(3)])


@pytest.fixture
def memory():
    """An empty in-memory file system, which notes what is read from it."""
    with empty_memory() as system:
        yield system


@pytest.fixture
def url(original, memory):
    memory.put(str(original[0].path / "ckpt_dir"), "/bucket/run/ckpt_dir", recursive=True)
    return "memory://bucket/run"


@pytest.fixture
def no_copies(monkeypatch):
    monkeypatch.setattr(run_files, "_COPIES_AT_MOST", 0)


@pytest.fixture(params=[True, False])
def room(request):
    """Whether there is room for copies."""
    if not request.param:
        request.getfixturevalue("no_copies")
    return request.param


@pytest.fixture
def ranges(monkeypatch):
    """The byte ranges that are read, as (start, stop)."""
    read = []
    original = MemoryFileSystem.cat_file

    def cat_file(self, path, start=None, end=None, **kwargs):
        read.append((start, end))
        return original(self, path, start=start, end=end, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    return read


def copies():
    return temporary(f"landscape-copy-{os.getpid()}-*")


def test_it_reads_as_on_disk(original, url, room):
    local, steps, _ = original
    run = RunDirectory(url)
    assert run.metadata == local.metadata
    assert run.present((0, 1, 2, 3)) == [0, 1, 2]
    assert run.missing((0, 1, 2, 3)) == [3]
    for number in range(3):
        checkpoint = run.checkpoint(number, SPACE)
        assert_holds(checkpoint, steps[number])
        assert checkpoint.sha256() == local.checkpoint(number).sha256()
        assert checkpoint.label == f"memory:///bucket/run/ckpt_dir/SmallNetwork_{number}_step.safetensors"
    assert isinstance(run.checkpoint(number).path, Path) == room


@pytest.mark.usefixtures("room")
def test_a_checkpoint_outlives_its_run_directory(original, url):
    checkpoint = RunDirectory(url).checkpoint(1, SPACE)
    assert_holds(checkpoint, original[1][1])


def test_without_room_only_the_asked_bytes_are_transferred(url, memory, no_copies, ranges):
    run = RunDirectory(url)
    del run.metadata.sha256[1]
    checkpoint = run.checkpoint(1, SPACE)
    name = max(checkpoint.shapes, key=lambda item: len(checkpoint.read(item).tobytes()))
    ranges.clear()
    block = checkpoint.read_block(name, 1, 3)
    ((start, stop),) = ranges
    assert stop - start == block.nbytes == 2 * block.itemsize
    assert block.tolist() == checkpoint.read(name).reshape(-1)[1:3].tolist()
    memory.rm("/bucket/run/ckpt_dir/SmallNetwork_1_step.safetensors")
    with pytest.raises(CheckpointError, match=r"_1_step.safetensors cannot be read: FileNotFoundError"):
        checkpoint.read(name)


def test_copies_are_bounded_and_go_with_the_run_as_those_of_a_killed_process_do(url, memory, monkeypatch):
    size = memory.size("/bucket/run/ckpt_dir/SmallNetwork_0_step.safetensors")
    monkeypatch.setattr(run_files, "_COPIES_AT_MOST", int(2.5 * size))
    left = Path(tempfile.mkdtemp(prefix=f"landscape-copy-{ended_process()}-"))
    (left / "0.safetensors").write_bytes(b"x")
    run = RunDirectory(url)
    assert not left.exists()
    readers = [run.checkpoint(number) for number in range(3)]
    assert [isinstance(reader.path, Path) for reader in readers] == [True, True, False]
    assert run.checkpoint(0).path == readers[0].path
    (folder,) = copies()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2.5 * size
    del run, readers
    assert copies() == []


@pytest.mark.usefixtures("room")
def test_another_network_and_a_truncated_or_changed_checkpoint(url, memory):
    with pytest.raises(CheckpointError, match=r"memory:///bucket/run"):
        RunDirectory(url).checkpoint(1, describe_network(nn.Linear(2, 2)))
    path = "/bucket/run/ckpt_dir/SmallNetwork_1_step.safetensors"
    content = memory.cat_file(path)
    memory.pipe_file(path, content[:-1])
    with pytest.raises(CheckpointError, match=r"memory:///bucket/.*_1_step.safetensors is not a whole safetensors"):
        RunDirectory(url).checkpoint(1)
    memory.pipe_file(path, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"memory:///.* is not the file that training wrote"):
        RunDirectory(url).checkpoint(1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.safetensors", "is missing; restore it"),
        ("/bucket/secret.safetensors", "is missing; restore it"),
        ("memory://bucket/secret.safetensors", "is missing; restore it"),
        ("%2e%2e%2fsecret.safetensors", "cannot be the name of a file behind memory"),
        ("x?path=secret.safetensors", "cannot be the name of a file behind memory"),
    ],
)
def test_nothing_outside_is_read(url, memory, ranges, name, message):
    for place in ("/bucket", "/bucket/run"):
        memory.cp_file("/bucket/run/ckpt_dir/SmallNetwork_1_step.safetensors", f"{place}/secret.safetensors")
    path = "/bucket/run/ckpt_dir/train_metadata.json"
    content = json.loads(memory.cat_file(path))
    content["model_params_file_map"]["1"] = name
    del content["sha256"]
    memory.pipe_file(path, json.dumps(content).encode())
    run = RunDirectory(url)
    ranges.clear()
    with pytest.raises(CheckpointError, match=message):
        run.checkpoint(1)
    assert ranges == []


class TestAddresses:
    @pytest.mark.parametrize(
        ("expected", "paths"),
        [
            (True, ["memory://x", "s3://bucket/run", "simplecache::s3://bucket/run"]),
            (False, ["run", "/data/run", "C:run", "a:b", Path("s3://bucket/run"), b"s3://x"]),
        ],
    )
    def test_a_url(self, expected, paths):
        assert [is_url(path) for path in paths] == [expected] * len(paths)

    def test_a_file_url_is_a_folder_of_this_machine(self, original, tmp_path):
        folder = tmp_path / "my run"
        folder.symlink_to(original[0].path)
        run = RunDirectory(folder.as_uri())
        assert run.path == folder
        assert run.present((0, 1)) == [0, 1]

    def test_nothing_there(self, memory):
        with pytest.raises(RunDirectoryError, match=r"summary_dir memory:///bucket/none does not exist; give the"):
            RunDirectory("memory://bucket/none")
        memory.pipe_file("/bucket/file", b"x")
        with pytest.raises(RunDirectoryError, match=r"memory:///bucket/file is not a directory"):
            RunDirectory("memory://bucket/file")
        memory.pipe_file("/bucket/empty/x", b"x")
        with pytest.raises(RunDirectoryError, match=r"memory:///bucket/empty holds no collected run"):
            RunDirectory("memory://bucket/empty")
        # A path object has lost slashes.
        with pytest.raises(RunDirectoryError, match=r"does not exist.* A URL must be a str; a Path loses its slashes"):
            RunDirectory(Path("s3://bucket/run"))

    def test_a_missing_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(ImportError, match=r"needs the package fsspec: pip install 'summary-landscape\[remote\]'"):
            check_directory("summary_dir", "memory://x")
