"""Run directories as they are read: moved, damaged, of an earlier program, and hostile ones."""

import json
import ntpath
import os
import shutil

import pytest
from runs import SmallNetwork, assert_holds, collected, metadata_path, names, seeded
from torch import nn

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.run_directory.settings import CreateLandscape


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return collected(tmp_path_factory.mktemp("run"), intervals=[range(5)])


@pytest.fixture
def directory(original, tmp_path):
    return shutil.copytree(original[0].path, tmp_path / "run")


@pytest.fixture
def secret(directory):
    """Another run's checkpoint that must never be read lies beside the directory, and in it."""
    other, _, _ = collected(directory.parent / "other", seeded(SmallNetwork, 1), intervals=[range(3)])
    for folder in (directory.parent, directory):
        shutil.copy(other.checkpoint_path(1), folder / "secret.safetensors")


def change(directory, **changes):
    """Rewrites the metadata with other values; ``...`` removes a key."""
    path = metadata_path(directory)
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def name_first(directory, text):
    """Makes the file map say that checkpoint 1 lies somewhere; without hashes, which would catch it later."""
    change(directory, model_params_file_map={**RunDirectory(directory).metadata.files, 1: text}, sha256=...)


def check_refused(directory, match, number=None):
    """A directory cannot be read or, given a number, its checkpoint cannot."""
    with pytest.raises(RunDirectoryError if number is None else CheckpointError, match=match):
        RunDirectory(directory) if number is None else RunDirectory(directory).checkpoint(number)


def file_of(directory, number):
    return directory / "ckpt_dir" / f"SmallNetwork_{number}_step.safetensors"


def test_a_moved_directory_is_read_and_not_changed(original, directory):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (directory / "ckpt_dir").iterdir()}
    run = RunDirectory(str(directory))
    assert run.settings == original[0].settings
    space = describe_network(SmallNetwork())
    for number in range(5):
        assert_holds(run.checkpoint(number, space), original[1][number])
        assert run.checkpoint_path(number) == file_of(directory, number)
    run.missing((0, 1, 99))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert names(directory) == ["ckpt_dir"]


def test_missing_and_foreign_directories(tmp_path):
    with pytest.raises(TypeError, match="summary_dir must be a path"):
        RunDirectory(3)
    check_refused(tmp_path / "nowhere", r"nowhere does not exist; give the directory that a SummaryCollector")
    (tmp_path / "file").write_text("x")
    check_refused(tmp_path / "file", "file is not a directory")
    check_refused(tmp_path, r"holds no collected run: .*train_metadata.json does not exist. Train")
    (tmp_path / "ckpt_dir").write_text("a file")
    check_refused(tmp_path, r"train_metadata.json cannot be read: Not a directory")
    (tmp_path / "ckpt_dir").unlink()
    (tmp_path / "ckpt_dir" / "train_metadata.json").mkdir(parents=True)
    check_refused(tmp_path, r"train_metadata.json is not a regular file")


def test_metadata_truncated_anywhere(directory):
    whole = metadata_path(directory).read_bytes()
    end = len(whole.rstrip())
    for length in range(0, end, 7):
        metadata_path(directory).write_bytes(whole[:length])
        text = r"is not valid JSON \(.*\); it is truncated or damaged. Restore it"
        check_refused(directory, text)
    metadata_path(directory).write_text("[]")
    check_refused(directory, "is not usable: the metadata must be a dict")
    metadata_path(directory).write_bytes(whole[:end])
    assert RunDirectory(directory).metadata.files


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"colour": "red"}, r"the metadata has unknown keys \['colour'\]"),
        ({"unit": ...}, r"the metadata lacks the keys \['unit'\]"),
        ({"format_version": 2}, "format_version is 2, this program reads up to 1; upgrade"),
        ({"format_version": "1"}, "format_version must be an int of at least 0, but got str"),
        ({"epoch_group": [[1, 2, 3]]}, "epoch_group must be a dict with numbers as keys, but got list"),
        ({"epoch_group": {}}, "epoch_group must hold at least one interval"),
        ({"epoch_group": {"0": 3}}, r"epoch_group\['0'\] must be a list, but got int"),
        ({"epoch_group": {"first": [1, 2, 3]}}, "a key of epoch_group must be a non-negative number"),
        ({"unit": "batch"}, "unit must be one of 'step', 'epoch', but got 'batch'"),
        ({"num_samples": 0}, "num_samples must be an int of at least 1, but got 0"),
        ({"landscape_size": 1000}, "landscape_size must be an int from 3 to 256, but got 1000"),
        ({"create_landscape": {"train": 1, "result": 0}}, r"create_landscape\['train'\] must be a bool"),
        ({"trained_to": -1}, "trained_to must be an int of at least 0, but got -1"),
        ({"step_per_epoch": 0}, "step_per_epoch must be an int of at least 1, but got 0"),
        ({"framework": 3}, "framework must be a str, but got int"),
        ({"network": "Net"}, "network must be a dict, but got str"),
        ({"model_params_file_map": ["a"]}, "model_params_file_map must be a dict with numbers as keys"),
        ({"model_params_file_map": {"x": "a"}}, "a key of model_params_file_map must be a non-negative number"),
        ({"model_params_file_map": {"01": "a"}}, ".* without leading zeros, but got '01'"),
        ({"model_params_file_map": {"²": "a"}}, "a key of model_params_file_map must be a non-negative number"),
        ({"model_params_file_map": {"9" * 30: "a"}}, "a key of model_params_file_map must be"),
        ({"model_params_file_map": {"1": 3}}, r"model_params_file_map\['1'\] must be a str, but got int"),
        ({"sha256": {"1": None}}, r"sha256\['1'\] must be a str, but got NoneType"),
        ({"frozen": []}, "frozen must be a dict"),
        ({"frozen": {"file": "a"}}, r"frozen.*sha256"),
        ({"frozen": {"file": "a", "sha256": 3}}, r"frozen\['sha256'\] must be a str, but got int: 3"),
        ({"frozen": {"file": "a/..", "sha256": ""}}, r"frozen\['file'\] must name a file, but got 'a/\.\.'"),
    ],
)  # fmt: skip
def test_metadata_with_wrong_content(directory, changes, match):
    change(directory, **changes)
    check_refused(directory, f"train_metadata.json is not usable: {match}")


def test_intervals_are_in_the_order_of_their_numbers(directory):
    groups = {"10": [7, 8, 9], "2": [4, 5, 6], "0": [1, 2, 3]}
    change(directory, epoch_group=groups)
    assert RunDirectory(directory).settings.intervals == ((1, 2, 3), (4, 5, 6), (7, 8, 9))


@pytest.mark.parametrize("absolute", ["/home/someone/summary/ckpt_dir/", "C:\\runs\\ckpt_dir\\"])
def test_what_the_reference_itself_wrote(directory, absolute):
    """Seven keys, absolute paths of another machine, MindSpore's own files, and a mode of 0400."""
    files = {str(number): f"{absolute}LeNet5_{number}_step.ckpt" for number in range(5)}
    content = {
        "epoch_group": {"0": [0, 1, 2], "1": [2, 3, 4]},
        "model_params_file_map": files,
        "step_per_epoch": 1875,
        "unit": "step",
        "num_samples": 2048,
        "landscape_size": 40,
        "create_landscape": {"train": True, "result": False},
    }
    metadata_path(directory).write_text(json.dumps(content))
    metadata_path(directory).chmod(0o400)
    run = RunDirectory(directory)
    assert run.settings.intervals == ((0, 1, 2), (2, 3, 4))
    assert run.settings.create_landscape == CreateLandscape(True, False)
    assert (run.metadata.framework, run.metadata.step_per_epoch) == ("mindspore", 1875)
    assert run.metadata.files == {number: ntpath.basename(files[str(number)]) for number in range(5)}
    assert run.missing((0, 1, 2)) == [0, 1, 2]
    for number in range(5):
        (directory / "ckpt_dir" / f"LeNet5_{number}_step.ckpt").write_bytes(b"protobuf")
    assert run.present((2, 3, 4)) == [2, 3, 4]
    # Where MindSpore is installed, these bytes are no checkpoint.
    with pytest.raises((CheckpointError, ImportError), match=r"LeNet5_3_step.ckpt is (damaged|MindSpore's)"):
        run.checkpoint(3)


def test_a_number_that_the_run_does_not_have_and_a_checkpoint_that_is_gone(directory):
    check_refused(directory, r"has no checkpoint of step 77; it has \[0, 1, 2, 3, 4\]. Choose one", 77)
    file_of(directory, 2).unlink()
    run = RunDirectory(directory)
    assert run.missing((0, 1, 2, 3)) == [2]
    assert run.present((0, 1, 2, 3)) == [0, 1, 3]
    with pytest.raises(CheckpointError, match=r"SmallNetwork_2_step.safetensors of step 2 is missing; restore it"):
        run.checkpoint(2)


def test_changed_bytes_and_swapped_checkpoints(directory):
    path = file_of(directory, 0)
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    spare = directory / "spare"
    file_of(directory, 1).rename(spare)
    file_of(directory, 2).rename(file_of(directory, 1))
    spare.rename(file_of(directory, 2))
    for number in (0, 1, 2):
        with pytest.raises(CheckpointError, match=r"is not the file that training wrote \(its SHA-256 differs"):
            RunDirectory(directory).checkpoint(number, describe_network(SmallNetwork()))
    assert RunDirectory(directory).checkpoint(3)


def test_a_checkpoint_of_another_network_lists_names_and_shapes(directory, tmp_path):
    collected(tmp_path / "other", seeded(lambda: SmallNetwork(width=7)), intervals=[range(5)])
    shutil.copy(file_of(tmp_path / "other", 3), file_of(directory, 3))
    with pytest.raises(CheckpointError, match="does not fit the network SmallNetwork") as raised:
        RunDirectory(directory).checkpoint(3, describe_network(SmallNetwork()))
    assert "  0.weight: the network has (5, 3), found (7, 3)" in str(raised.value).splitlines()
    with pytest.raises(CheckpointError, match="does not fit the network Linear") as raised:
        RunDirectory(directory).checkpoint(3, describe_network(nn.Linear(3, 2)))
    lines = str(raised.value).splitlines()
    assert lines[1:3] == ["  weight (2, 3): missing", "  bias (2,): missing"]
    assert "  0.weight (7, 3): unknown" in lines


@pytest.mark.parametrize(
    "text",
    [
        "../secret.safetensors",
        "a/../../secret.safetensors",
        "..\\..\\secret.safetensors",
        "C:\\Users\\someone\\secret.safetensors",
        "\\\\server\\share\\secret.safetensors",
        "~/secret.safetensors",
        "{outside}/secret.safetensors",
        "{outside}/run/ckpt_dir/../../secret.safetensors",
    ],
)
def test_only_the_name_of_a_path_counts(directory, secret, text):
    name_first(directory, text.format(outside=directory.parent))
    run = RunDirectory(directory)
    assert run.metadata.files[1] == "secret.safetensors"
    assert run.missing((0, 1, 2)) == [1]
    with pytest.raises(CheckpointError, match=r"ckpt_dir/secret.safetensors of step 1 is missing"):
        run.checkpoint(1)
    found = file_of(directory, 2).rename(directory / "ckpt_dir" / "secret.safetensors")
    assert run.checkpoint_path(1) == found


@pytest.mark.parametrize("prefix", ["/gone/", "C:\\gone\\", "../../", "\\\\server\\share\\", ""])
def test_a_moved_checkpoint_without_a_hash_is_found_by_its_name(original, directory, prefix):
    name_first(directory, prefix + "SmallNetwork_1_step.safetensors")
    assert_holds(RunDirectory(directory).checkpoint(1), original[1][1])


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "/", "a/", "..\\", "C:", "C:\\", "a\0b.safetensors", "x" * 256, "ä" * 128,
        "\ud800.safetensors", "dir/..",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_name_of_a_file(directory, text):
    name_first(directory, text)
    check_refused(directory, r"model_params_file_map\['1'\] must name a file, but got")


@pytest.mark.parametrize("text", ["train_metadata.json", "x" * 255, "*", "-rf", " ", "\n", "%00", "con"])
def test_odd_names_are_just_names(directory, text):
    name_first(directory, text)
    run = RunDirectory(directory)
    with pytest.raises(CheckpointError, match=r"is missing; restore it|only .safetensors can be read here"):
        run.checkpoint(1)


@pytest.mark.parametrize("target", ["../secret.safetensors", "{outside}/secret.safetensors"])
def test_links_that_leave_the_directory_are_refused(directory, secret, target):
    link = file_of(directory, 1)
    link.unlink()
    link.symlink_to(target.format(outside=directory.parent))
    name_first(directory, link.name)
    check_refused(directory, r"SmallNetwork_1_step.safetensors links out of the run directory; copy", 1)


def test_chains_and_loops_of_links(directory, secret):
    first, second = file_of(directory, 1), file_of(directory, 2)
    first.unlink()
    first.symlink_to(second)
    name_first(directory, first.name)
    assert RunDirectory(directory).checkpoint(1).sha256() == RunDirectory(directory).checkpoint(2).sha256()
    second.unlink()
    second.symlink_to("../../secret.safetensors")
    check_refused(directory, "links out of the run directory", 1)
    second.unlink()
    second.symlink_to(first)
    check_refused(directory, "is missing", 1)
    # Nor is a checkpoint what is no regular file.
    for number, make in ((3, os.mkdir), (4, os.mkfifo)):
        file_of(directory, number).unlink()
        make(file_of(directory, number))
        check_refused(directory, "is missing", number)


def test_metadata_that_is_no_regular_file_of_the_directory(directory, tmp_path):
    path = metadata_path(directory)
    elsewhere = path.rename(tmp_path / "train_metadata.json")
    for make, match in (
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "links out of the run directory"),
        (lambda path: path.symlink_to(elsewhere), r"train_metadata.json links out of the run directory; copy"),
        (lambda path: path.symlink_to(path), r"cannot be read|does not exist"),
    ):
        make(path)
        check_refused(directory, match)
        path.unlink()
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    check_refused(directory, "is larger than 67108864 bytes and cannot be ours")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '{"epoch_group": ' + "9" * 5000 + "}", "\ufeff{}", "NaN"]
)
def test_json_that_strains_the_parser(directory, text):
    whole = metadata_path(directory).read_text()
    metadata_path(directory).write_text(text, encoding="utf-8")
    check_refused(directory, r"is not valid JSON|is not usable")
    metadata_path(directory).write_text(whole, encoding="utf-16")
    check_refused(directory, "is not valid JSON")
