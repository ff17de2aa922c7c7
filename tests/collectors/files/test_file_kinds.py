"""Files of other kinds are called what they are, with what to do, by every reader of weights and of landscapes."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile

import h5py
import numpy as np
import pytest
import torch
from places import DATA
from safetensors.numpy import save

from collectors import import_checkpoints
from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files.file_kinds import check_kind, other_kind
from collectors.run_directory import RunDirectory
from collectors.weights.foreign_checkpoint import read_checkpoint
from collectors.weights.safetensors_file import CheckpointFile
from landscape import Landscape
from landscape.errors import LandscapeDamagedError, LandscapeFormatError


def image_of(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def tar(stream):
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.pt"))


def hdf5(stream):
    with h5py.File(stream, "w") as file:
        file["weights"] = np.ones(3)


ARRAYS = {"w": np.ones(3, np.float32)}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
OTHERS = {
    "lfs": (LFS, "a pointer of Git LFS, which stands for the file; run `git lfs pull`"),
    "page": (b"\n<!DOCTYPE html>\n<html><head></head></html>", r"a web page \(HTML\), such as a log-in"),
    "xml": (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "an XML text, such as the answer of a"),
    "gzip": (gzip.compress(b"abc" * 100), "compressed with gzip, .* unpack it first"),
    "bzip2": (bz2.compress(b"abc" * 100), "compressed with bzip2, .* unpack it first"),
    "xz": (lzma.compress(b"abc" * 100), "compressed with xz, .* unpack it first"),
    "tar": (image_of(tar), "a tar archive; unpack it with `tar -xf`"),
    "json": (b'{"a": 1}', "a JSON text"),
    "text": (b"Access denied\n", "a text that begins with 'Access denied'; copy or download"),
    "empty": (b"", "empty; copy or download it again"),
}
LEGACY = image_of(lambda file: torch.save({"w": torch.ones(3)}, file, _use_new_zipfile_serialization=False))
CASES = [
    *((f"a{suffix}", *OTHERS[kind]) for kind in OTHERS for suffix in (".pt", ".safetensors", ".ckpt", ".bin", "")),
    ("a.pt", save(ARRAYS), "a safetensors file; rename it so that it ends with .safetensors"),
    ("a.ckpt", save(ARRAYS), "a safetensors file; rename it"),
    (
        "a.safetensors",
        image_of(lambda file: torch.save({"w": torch.ones(3)}, file)),
        "a PyTorch file; rename it so that it ends with .pt",
    ),
    ("a.safetensors", LEGACY, "a PyTorch file"),
    ("a.pt", image_of(lambda file: np.save(file, np.ones(3))), "a file of NumPy; load it with numpy.load"),
    ("a.pth", image_of(lambda file: np.savez(file, **ARRAYS)), "a file of NumPy; load it with numpy.load"),
    ("a.bin", image_of(hdf5), "an HDF5 file, such as a landscape or weights of Keras"),
    ("a.safetensors", image_of(hdf5), "an HDF5 file"),
]


@pytest.mark.parametrize(("name", "content", "words"), CASES, ids=[f"{name} {words}" for name, _, words in CASES])
def test_no_checkpoint(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"checkpoint \S*{name} is {words}"):
        read_checkpoint(tmp_path / name)


# Nobody who wants a landscape renames weights.
@pytest.mark.parametrize("case", [*(OTHERS[kind] for kind in OTHERS if kind != "empty"), (LEGACY, r"a PyTorch file\.")])
def test_no_landscape(tmp_path, case):
    content, words = case
    for suffix, read in ((".h5", Landscape.load), (".npz", Landscape.import_file)):
        (tmp_path / f"a{suffix}").write_bytes(content)
        with pytest.raises(LandscapeFormatError, match=rf"a{suffix} is no .* but {words}"):
            read(tmp_path / f"a{suffix}")


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (None, "holds no weights, but what this program has measured; give it to what reads landscapes"),
        (9000, r"is damaged or no file of Keras' weights \(.*truncated file"),
        (3, "is damaged or no file of Keras' weights"),
        (0, "is empty"),
    ],
)
def test_a_landscape_is_no_checkpoint(tmp_path, length, words):
    (tmp_path / "a.h5").write_bytes((DATA / "versions" / "landscape_2.h5").read_bytes()[:length])
    with pytest.raises(CheckpointError, match=rf"checkpoint \S*a.h5 {words}"):
        read_checkpoint(tmp_path / "a.h5")


def test_an_empty_landscape(tmp_path):
    (tmp_path / "a.h5").touch()
    with pytest.raises(LandscapeDamagedError, match=r"landscape file \S*a.h5 is empty. It was left as it is: copy it"):
        Landscape.load(tmp_path / "a.h5")


def test_parts_that_git_lfs_has_not_fetched(tmp_path):
    (tmp_path / "pytorch_model-00001-of-00002.bin").write_bytes(LFS)
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}}')
    with pytest.raises(CheckpointError, match=r"pytorch_model-00001-of-00002.bin is a pointer of Git LFS"):
        read_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(LFS)
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin.index.json is a pointer of Git LFS"):
        read_checkpoint(tmp_path)


def test_a_run_that_git_lfs_has_not_fetched(tmp_path):
    for number in range(3):
        torch.save({"w": torch.full((2,), number)}, tmp_path / f"{number}.pt")
    run = import_checkpoints(tmp_path / "run", tmp_path)
    run.checkpoint_path(1).write_bytes(LFS)
    with pytest.raises(CheckpointError, match=r"_1_epoch.safetensors is a pointer of Git LFS.*`git lfs pull`"):
        run.checkpoint(1)
    metadata = next((tmp_path / "run").rglob("*.json"))
    metadata.write_bytes(LFS)
    with pytest.raises(RunDirectoryError, match=r"train_metadata.json is a pointer of Git LFS.*`git lfs pull`"):
        RunDirectory(tmp_path / "run")


def test_a_header_of_safetensors_as_long_as_the_mark_of_gzip(tmp_path):
    whole = save(ARRAYS)
    length = int.from_bytes(b"\x1f\x8b", "little")
    header = whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]].ljust(length)
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", length) + header + ARRAYS["w"].tobytes())
    np.testing.assert_array_equal(CheckpointFile(tmp_path / "a.safetensors").read("w"), ARRAYS["w"])


def test_what_looks_like_another_kind():
    begins = b'\n{\n"' + b"layer.weight".ljust(34, b"x") + b"\x12\x55"
    assert other_kind(begins, "MindSpore") is None
    assert other_kind(begins, "PyTorch") == "a checkpoint of MindSpore"
    with pytest.raises(CheckpointError, match=r"a is a checkpoint of MindSpore; rename it so that it ends with .ckpt"):
        check_kind("a", begins, "PyTorch")
    # A text whose last letter is cut off.
    assert other_kind("Größe".encode() * 20 + "ö".encode()[:1]) is not None
    assert other_kind(b"\x00\x01\x02" * 20) is None
