import json
import os
import shutil

import pytest
from runs import SmallNetwork, assert_holds, collected, metadata_path, seeded

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.run_directory import RunDirectory


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return collected(tmp_path_factory.mktemp("run"), intervals=[range(3)])


@pytest.fixture
def directory(original, tmp_path):
    """A run directory beside which lies another run's checkpoint that must never be read."""
    collected(tmp_path / "other", seeded(SmallNetwork, 1), intervals=[range(3)])
    shutil.copy(tmp_path / "other" / "ckpt_dir" / "SmallNetwork_1_step.safetensors", tmp_path / "secret.safetensors")
    (tmp_path / "run").mkdir()
    shutil.copy(tmp_path / "secret.safetensors", tmp_path / "run" / "secret.safetensors")
    return shutil.copytree(original[0].path, tmp_path / "run", dirs_exist_ok=True)


def name_first(directory, text):
    """Makes the file map say that checkpoint 1 lies somewhere; without hashes, which would catch it later."""
    content = json.loads(metadata_path(directory).read_text())
    content["model_params_file_map"]["1"] = text
    del content["sha256"]
    metadata_path(directory).write_text(json.dumps(content))


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
def test_only_the_name_of_a_path_counts(directory, text):
    name_first(directory, text.format(outside=directory.parent))
    run = RunDirectory(directory)
    assert run.metadata.files[1] == "secret.safetensors"
    assert run.missing((0, 1, 2)) == [1]
    with pytest.raises(CheckpointError, match=r"ckpt_dir/secret.safetensors of step 1 is missing"):
        run.checkpoint(1)
    mine = directory / "ckpt_dir" / "SmallNetwork_2_step.safetensors"
    mine.rename(directory / "ckpt_dir" / "secret.safetensors")
    assert run.checkpoint_path(1) == directory / "ckpt_dir" / "secret.safetensors"


@pytest.mark.parametrize("prefix", ["/gone/", "C:\\gone\\", "../../", "\\\\server\\share\\", ""])
def test_a_moved_checkpoint_is_found_by_its_name(original, directory, prefix):
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
    with pytest.raises(RunDirectoryError, match=r"model_params_file_map\['1'\] must name a file, but got"):
        RunDirectory(directory)


@pytest.mark.parametrize("text", ["train_metadata.json", "x" * 255, "*", "-rf", " ", "\n", "%00", "con"])
def test_odd_names_are_just_names(directory, text):
    name_first(directory, text)
    run = RunDirectory(directory)
    with pytest.raises(CheckpointError, match=r"is missing; restore it|only .safetensors can be read here"):
        run.checkpoint(1)


@pytest.mark.parametrize("target", ["../secret.safetensors", "{outside}/secret.safetensors"])
def test_links_that_leave_the_directory_are_refused(directory, target):
    link = directory / "ckpt_dir" / "SmallNetwork_1_step.safetensors"
    link.unlink()
    link.symlink_to(target.format(outside=directory.parent))
    name_first(directory, link.name)
    with pytest.raises(CheckpointError, match=r"SmallNetwork_1_step.safetensors links out of the run directory; copy"):
        RunDirectory(directory).checkpoint(1)


def test_chains_and_loops_of_links(directory):
    first, second = (directory / "ckpt_dir" / f"SmallNetwork_{number}_step.safetensors" for number in (1, 2))
    first.unlink()
    first.symlink_to(second)
    name_first(directory, first.name)
    assert RunDirectory(directory).checkpoint(1).sha256() == RunDirectory(directory).checkpoint(2).sha256()
    second.unlink()
    second.symlink_to("../../secret.safetensors")
    with pytest.raises(CheckpointError, match="links out of the run directory"):
        RunDirectory(directory).checkpoint(1)
    second.unlink()
    second.symlink_to(first)
    with pytest.raises(CheckpointError, match="is missing"):
        RunDirectory(directory).checkpoint(1)


def test_a_checkpoint_that_is_no_regular_file(directory):
    path = directory / "ckpt_dir" / "SmallNetwork_1_step.safetensors"
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match="is missing"):
        RunDirectory(directory).checkpoint(1)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is missing"):
        RunDirectory(directory).checkpoint(1)


def test_metadata_that_is_no_regular_file_of_the_directory(directory, tmp_path):
    path = metadata_path(directory)
    elsewhere = tmp_path / "train_metadata.json"
    path.rename(elsewhere)
    os.mkfifo(path)
    with pytest.raises(RunDirectoryError, match="is not a regular file"):
        RunDirectory(directory)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(RunDirectoryError, match="links out of the run directory"):
        RunDirectory(directory)
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(RunDirectoryError, match=r"train_metadata.json links out of the run directory; copy"):
        RunDirectory(directory)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(RunDirectoryError, match=r"cannot be read|does not exist"):
        RunDirectory(directory)


def test_metadata_larger_than_any_of_ours(directory):
    with metadata_path(directory).open("r+b") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(RunDirectoryError, match="is larger than 67108864 bytes and cannot be ours"):
        RunDirectory(directory)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '{"epoch_group": ' + "9" * 5000 + "}", "\ufeff{}", "NaN"]
)
def test_json_that_strains_the_parser(directory, text):
    whole = metadata_path(directory).read_text()
    metadata_path(directory).write_text(text, encoding="utf-8")
    with pytest.raises(RunDirectoryError, match=r"is not valid JSON|is not usable"):
        RunDirectory(directory)
    metadata_path(directory).write_text(whole, encoding="utf-16")
    with pytest.raises(RunDirectoryError, match="is not valid JSON"):
        RunDirectory(directory)
