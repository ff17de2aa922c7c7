"""Folders that PyTorch's distributed checkpoints and DeepSpeed write are read whole, and hostile ones are refused."""

import contextlib
import os
import pickle
import random
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from places import DATA
from runs import SmallNetwork, TiedNetwork, assert_holds, seeded
from safetensors.torch import load_file
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network
from collectors.weights.aligned import as_reader
from collectors.weights.foreign_checkpoint import read_checkpoint


def saved(folder, content):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no process group
        dcp.save(content, checkpoint_id=str(folder), no_dist=True)
    return folder


def trained_state(seed=0):
    """Returns network, optimizer and what a training keeps besides."""
    network = seeded(SmallNetwork, seed)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))).sum().backward()
    optimizer.step()
    return network, {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, "name": "x"}


def check_refused(path, match):
    with pytest.raises(CheckpointError, match=match):
        read_checkpoint(path)


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "saved", trained_state()[1])


class TestPyTorchFolders:
    @pytest.mark.parametrize("key", ["model", "state_dict", None])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_they_hold_what_was_saved(self, tmp_path, key, dtype):
        state = seeded(SmallNetwork).to(dtype).state_dict()
        found = read_checkpoint(saved(tmp_path / "saved", state if key is None else {key: state, "step": 3})).tensors
        assert set(found) == set(state)
        for name, tensor in state.items():
            assert found[name].dtype.name == str(tensor.dtype).removeprefix("torch.")
            np.testing.assert_array_equal(found[name].astype(np.float64), tensor.double().numpy())

    def test_they_are_weights_of_a_plane(self, folder):
        network, _ = trained_state()
        assert_holds(as_reader("origin", folder), network.state_dict())

    def test_tied_weights_are_read_under_both_names_and_fit_the_network(self, tmp_path):
        state = seeded(TiedNetwork).state_dict()
        found = read_checkpoint(saved(tmp_path / "saved", {"model": state})).tensors
        shapes = {name: array.shape for name, array in found.items()}
        describe_network(TiedNetwork()).check_state("it", shapes)

    def test_a_checkpoint_of_accelerate_has_them_one_folder_below_under_names_of_a_wrapper(self, tmp_path):
        state = seeded(SmallNetwork).state_dict()
        wrapped = {f"_fsdp_wrapped_module.{name}": item for name, item in state.items()}
        saved(tmp_path / "checkpoint-2" / "pytorch_model_fsdp_0", {"model": wrapped})
        assert set(read_checkpoint(tmp_path / "checkpoint-2").tensors) == set(state)
        check_refused(tmp_path, r"is a folder, but neither torch\.distributed\.checkpoint wrote it")


class Explosive:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def change(folder, edit):
    """Changes the metadata of a folder with PyTorch's own classes."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(edit(metadata) or metadata))


def move(**changes):
    def edit(metadata):
        index = next(index for index in metadata.storage_data if index.fqn == "model.0.weight")
        metadata.storage_data[index] = replace(metadata.storage_data[index], **changes)

    return edit


def cut(*chunks):
    def edit(metadata):
        entry = metadata.state_dict_metadata["model.0.weight"]
        entry.chunks = [ChunkStorageMetadata(torch.Size(first), torch.Size(shape)) for first, shape in chunks]
        index = next(index for index in metadata.storage_data if index.fqn == "model.0.weight")
        for first, _ in chunks:
            metadata.storage_data[replace(index, offset=torch.Size(first))] = metadata.storage_data[index]

    return edit


def grow(metadata):
    entry = metadata.state_dict_metadata["model.0.weight"]
    entry.size = entry.chunks[0].sizes = torch.Size((2**20, 2**20))


def repeat(metadata, times=200):
    """Makes a matrix of many parts that are all the same bytes."""
    entry = metadata.state_dict_metadata["model.0.weight"]
    rows, columns = entry.size
    entry.size = torch.Size((times * rows, columns))
    cut(*(((part * rows, 0), (rows, columns)) for part in range(times)))(metadata)


HOSTILE = {
    "code instead of metadata": (lambda _: Explosive(), "cannot be read as plain tensors .* a metadata.Metadata"),
    "a part outside": (move(relative_path="../part"), "its part '../part' lies outside of the folder"),
    "an absolute part": (move(relative_path="/etc/passwd"), "its part '/etc/passwd' lies outside of the folder"),
    "no such part": (move(relative_path="gone"), "is damaged or not whole"),
    "a part behind the end": (move(offset=2**40), r"it has no \d+ bytes behind byte 1099511627776"),
    "a longer part": (move(length=2**40), "it has no 1099511627776 bytes behind byte"),
    "a negative place": (move(offset=-1), "it has no .* bytes behind byte -1"),
    "another part": (move(offset=0, length=10), "is damaged or not whole"),
    "a compressed part": (move(transform_descriptors=["zstd"]), "parts that are compressed or encrypted"),
    "a hole": (cut(((0, 0), (4, 3))), r"the parts of '0.weight' do not cover its shape \(5, 3\) once"),
    "an overlap": (cut(((0, 0), (4, 3)), ((3, 0), (1, 3))), "do not cover its shape"),
    "too far": (cut(((1, 0), (5, 3))), "do not cover its shape"),
    "other parts": (cut(((0, 0), (2, 3)), ((2, 0), (3, 3))), "is not the tensor that the metadata names"),
    "a part again and again": (repeat, "its parts repeat bytes of its files"),
    "more than there is": (grow, "its tensors claim more than the .* bytes of its parts"),
}


def change_bytes(raw, random_numbers, count=1):
    for _ in range(count):
        raw[random_numbers.randrange(len(raw))] = random_numbers.randrange(256)
    return raw


def check_spoiled(folder, part, spoil, trials):
    """Tries a folder one part of which was spoiled in several ways, and leaves it as it was."""
    good = part.read_bytes()
    for _ in range(trials):
        part.write_bytes(spoil(bytearray(good)))
        with contextlib.suppress(CheckpointError):
            assert sum(array.nbytes for array in read_checkpoint(folder).tensors.values()) < 10**6
    part.write_bytes(good)


class TestHostileFolders:
    @pytest.mark.parametrize("case", HOSTILE)
    def test_they_are_refused_and_run_nothing(self, folder, case, monkeypatch):
        monkeypatch.chdir(folder)
        edit, match = HOSTILE[case]
        change(folder, edit)
        check_refused(folder, match)
        assert not Path("exploded").exists()

    def test_code_beside_the_metadata_runs_neither(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        change(folder, lambda metadata: setattr(metadata, "planner_data", {"a": Explosive()}))
        read_checkpoint(folder)
        assert not Path("exploded").exists()

    def test_a_part_that_links_elsewhere_is_refused(self, folder, tmp_path):
        part = folder / "__0_0.distcp"
        shutil.move(part, tmp_path / "elsewhere")
        part.symlink_to(tmp_path / "elsewhere")
        check_refused(folder, "lies outside of the folder")

    @pytest.mark.slow
    @pytest.mark.parametrize("trials", [10, 100])
    def test_changed_bytes_are_refused_or_read(self, folder, trials):
        """Only documented errors, whatever the bytes are."""
        random_numbers = random.Random(5)

        def spoil(raw):
            change_bytes(raw, random_numbers, random_numbers.randint(1, 4))
            return raw[: random_numbers.choice([len(raw), random_numbers.randrange(len(raw))])]

        for name in (".metadata", "__0_0.distcp"):
            check_spoiled(folder, folder / name, spoil, trials)


class TestDeepSpeedFolders:
    """The parts are real ones: ``tests/support/write_zero_parts.py`` wrote them with DeepSpeed 0.19.8."""

    @pytest.mark.parametrize("stage", [1, 2, 3])
    def test_they_hold_what_deepspeed_puts_together(self, stage):
        folder = DATA / f"zero_{stage}"
        expected = load_file(folder / "expected.safetensors")
        found = read_checkpoint(folder).tensors
        assert {name: array.tolist() for name, array in read_checkpoint(folder / "global_step3").tensors.items()} == {
            name: array.tolist() for name, array in found.items()
        }
        # DeepSpeed forgets frozen parameters with ZeRO 1; tied ones are saved once here.
        assert set(found) == {*expected, "fixed.weight", "fixed.bias"} - {"out.weight"}
        for name in set(found) & set(expected):
            np.testing.assert_array_equal(found[name].astype(np.float32), expected[name].float().numpy())
        assert {found[name].dtype.name for name in ("embedding.weight", "norm.weight", "out.bias")} == {"float32"}
        np.testing.assert_array_equal(found["seen"].astype(np.float32), [3, 3])

    def test_they_are_imported(self, tmp_path):
        folders = [DATA / f"zero_{stage}" for stage in (1, 2, 3)]
        run = import_checkpoints(tmp_path / "run", folders)
        expected = load_file(folders[2] / "expected.safetensors")
        np.testing.assert_array_equal(run.checkpoint(3).read("embedding.weight"), expected["embedding.weight"].numpy())

    @pytest.mark.parametrize(
        ("stage", "change", "match"),
        [
            (2, lambda parts: (parts / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(), "written by 2 processes"),
            (3, lambda parts: (parts / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink(), "not of all"),
            (1, lambda parts: (parts / "mp_rank_01_model_states.pt").touch(), "without pipelines, tensor parallelism"),
            (1, lambda parts: (parts / "layer_01-model_states.pt").touch(), "unsupported part layer_01-model_states"),
            (1, lambda parts: (parts / "mp_rank_00_model_states.pt").write_bytes(b""), "_states.pt is empty; copy or"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, tmp_path, stage, change, match):
        shutil.copytree(DATA / f"zero_{stage}", tmp_path, dirs_exist_ok=True)
        change(tmp_path / "global_step3")
        check_refused(tmp_path, match)

    @pytest.mark.parametrize("key", ["zero_stage", "partition_count"])
    def test_a_number_that_takes_for_ever_to_write_is_refused(self, tmp_path, key):
        shutil.copytree(DATA / "zero_2", tmp_path / "copy")
        part = tmp_path / "copy" / "global_step3" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
        nested = [1]
        for _ in range(60):
            nested = [nested, nested]
        torch.save({"optimizer_state_dict": {"zero_stage": 2, "partition_count": 2, key: nested}}, part)
        check_refused(tmp_path / "copy", "its stage, or the number of its processes, is no number")

    def test_latest_names_nothing_outside(self, tmp_path):
        shutil.copytree(DATA / "zero_2", tmp_path / "a")
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "latest").write_text("../a/global_step3")
        check_refused(tmp_path / "b", "is a folder, but neither")

    def test_code_in_a_part_does_not_run(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shutil.copytree(DATA / "zero_2", tmp_path / "copy")
        part = tmp_path / "copy" / "global_step3" / "mp_rank_00_model_states.pt"
        content = torch.load(part, weights_only=False)
        torch.save({**content, "client_state": Explosive()}, part)
        read_checkpoint(tmp_path / "copy")
        assert not Path("exploded").exists()

    @pytest.mark.parametrize("trials", [3, pytest.param(30, marks=pytest.mark.slow)])
    def test_changed_bytes_are_refused_or_read(self, tmp_path, trials):
        random_numbers = random.Random(6)
        for stage in (2, 3):
            shutil.copytree(DATA / f"zero_{stage}", tmp_path / str(stage))
            for part in sorted((tmp_path / str(stage) / "global_step3").iterdir()):
                check_spoiled(tmp_path / str(stage), part, lambda raw: change_bytes(raw, random_numbers), trials)
