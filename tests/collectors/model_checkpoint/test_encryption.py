"""Encryption, and files that were damaged on the way."""

import json
import re
import secrets
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import CheckpointError
from collectors.model_checkpoint import encryption as checkpoint_encryption
from collectors.model_checkpoint.archive import Archive, write_archive
from collectors.model_checkpoint.checkpoint_file import load_checkpoint
from collectors.model_checkpoint.config import CheckpointConfig
from collectors.model_checkpoint.encryption import ENCRYPTION_MODES, decrypt, encrypt
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint

KEY = bytes(range(32))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(checkpoint_encryption, "_BLOCK", 64)


@given(plain=st.binary(max_size=300), length=st.sampled_from([16, 24, 32]), mode=st.sampled_from(ENCRYPTION_MODES))
def test_round_trip(plain, length, mode):
    key = secrets.token_bytes(length)
    sealed = encrypt(plain, key, mode)
    assert decrypt(sealed, key, mode, "it") == plain
    assert encrypt(plain, key, mode) != sealed
    assert len(plain) < 8 or plain not in sealed


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("mode", ENCRYPTION_MODES)
def test_many_blocks(mode, size, small_blocks):
    plain = secrets.token_bytes(size)
    assert decrypt(encrypt(plain, KEY, mode), KEY, mode, "it") == plain


def derived(sealed, mode, key=KEY):
    info = b"summary-landscape checkpoint 1 " + mode.encode()
    return HKDF(SHA256(), len(key) + 48, sealed[:32], info).derive(key)


def test_the_modes_are_what_they_are_called():
    sealed = encrypt(b"some text", KEY, "AES-GCM")
    about = sealed[:48] + (1).to_bytes(8, "big")
    assert AESGCM(derived(sealed, "AES-GCM")[:32]).decrypt(bytes(12), sealed[48:], about) == b"some text"
    sealed = encrypt(b"some text", KEY, "AES-CBC")
    decryptor = Cipher(algorithms.AES(derived(sealed, "AES-CBC")[:32]), modes.CBC(sealed[48:64])).decryptor()
    assert decryptor.update(sealed[64:-32]) + decryptor.finalize() == b"some text" + bytes([7]) * 7


@pytest.mark.parametrize("mode", ENCRYPTION_MODES)
def test_every_flipped_bit_is_noticed(mode, small_blocks):
    sealed = encrypt(b"0123456789" * 15, KEY, mode)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1 << place % 8
        with pytest.raises((CheckpointError, ValueError), match=r"was changed or truncated|dec_key must be the key"):
            decrypt(bytes(changed), KEY, mode, "it")


@pytest.mark.parametrize("mode", ENCRYPTION_MODES)
def test_cut_joined_and_reordered_blocks_are_noticed(mode, small_blocks):
    sealed = encrypt(secrets.token_bytes(256), KEY, mode)
    head, body = sealed[:48], sealed[48:]
    block = 64 + 16
    pieces = [body[start : start + block] for start in range(0, len(body), block)]
    for order in ([0, 1, 2], [1, 0, 2, 3], [0, 0, 1, 2, 3], [], [3]):
        changed = head + b"".join(pieces[number] for number in order)
        with pytest.raises(CheckpointError, match="it was changed or truncated after it was written; copy it again"):
            decrypt(changed, KEY, mode, "it")
    for length in range(49):
        with pytest.raises((CheckpointError, ValueError)):
            decrypt(sealed[:length], KEY, mode, "it")


def archive():
    weights = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": np.array([1.5, np.nan], ml_dtypes.bfloat16),
        "count": np.array(7),
        "empty": np.empty((0, 3)),
    }
    return Archive.pack(weights, {"rate": 0.1, "tensor": torch.tensor([1, 2])}, None)


@pytest.fixture(params=[None, *ENCRYPTION_MODES])
def written(request, tmp_path):
    path = tmp_path / "a.safetensors"
    key = None if request.param is None else KEY
    mode = request.param or "AES-GCM"
    write_archive(path, archive(), key, mode)
    return path, key, mode


def test_a_file_gives_back_what_was_written_and_shows_nothing_if_encrypted(written):
    path, key, _ = written
    content = path.read_bytes()
    assert (b"weight" in content) == (b"rate" in content) == (key is None)
    checkpoint = load_checkpoint(*written)
    assert checkpoint.path == written[0]
    assert checkpoint.training_state is None
    assert checkpoint.info["rate"] == 0.1
    assert torch.equal(checkpoint.info["tensor"], torch.tensor([1, 2]))
    expected = archive().arrays
    assert set(checkpoint.weights) == {"weight", "half", "count", "empty"}
    for name, array in checkpoint.weights.items():
        assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
        assert array.tobytes() == expected[name].tobytes()
        assert array.flags.writeable


def test_truncated_files_and_flipped_bytes(written):
    path, *key = written
    content = path.read_bytes()
    for length in range(1, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
            load_checkpoint(path, *key)
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 0x20
        path.write_bytes(changed)
        if chr(content[place]) in " \0":
            # A space of the JSON that pads the header, or an empty byte: what they become may mean the same.
            continue
        with pytest.raises((CheckpointError, ValueError), match=re.escape(str(path))):
            load_checkpoint(path, *key)
    # The last one is of a weight.
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    text = r"was changed after it was written \(its SHA-256 differs\); copy it again"
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(path, *key)


def test_keys_modes_and_files_that_do_not_go_together(written, tmp_path):
    path, key, mode = written
    other = ENCRYPTION_MODES[1 - ENCRYPTION_MODES.index(mode)]
    if key is None:
        with pytest.raises(ValueError, match=r"dec_key must be None, because .*a\.safetensors is not encrypted"):
            load_checkpoint(path, KEY)
        load_checkpoint(path, None, other)
        return
    with pytest.raises(ValueError, match=rf"dec_key must be given, because .* is encrypted \({mode}\)"):
        load_checkpoint(path)
    with pytest.raises(ValueError, match=r"dec_key must be the key that checkpoint .* was encrypted with"):
        load_checkpoint(path, bytes(32), mode)
    with pytest.raises(ValueError, match=f"dec_mode must be '{mode}', with which .* was encrypted, but got '{other}'"):
        load_checkpoint(path, KEY, other)
    with pytest.raises(ValueError, match=r"dec_key must have 16, 24 or 32 bytes .* but got 3"):
        load_checkpoint(path, b"key", mode)


def test_the_missing_package_is_named(written, monkeypatch):
    path, *key = written
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    # This is what makes an import of a package fail as if it were not installed.
    monkeypatch.setitem(sys.modules, "cryptography", None)
    if key[0] is None:
        load_checkpoint(path, *key)
        CheckpointConfig()
        return
    for use in (lambda: load_checkpoint(path, *key), lambda: CheckpointConfig(enc_key=key[0])):
        with pytest.raises(ImportError, match=r"pip install 'summary-landscape\[crypto\]'"):
            use()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((3,), TypeError, "path must be a path"),
        (("",), ValueError, "path must be a path that is not blank"),
        (("/nowhere/a.safetensors",), CheckpointError, "checkpoint /nowhere/a.safetensors cannot be read"),
        (("a", "key"), TypeError, "dec_key must be bytes of length 16, 24 or 32, or None, but got str"),
        (("a", None, 3), TypeError, "dec_mode must be one of"),
        (("a", None, "AES"), ValueError, "dec_mode must be one of 'AES-GCM', 'AES-CBC', but got 'AES'"),
    ],
)
def test_wrong_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        load_checkpoint(*arguments)


def test_any_safetensors_file_has_weights(tmp_path):
    path = tmp_path / "b.safetensors"
    write_checkpoint(path, {"module.weight": np.ones(3)}, {"format": "pt"})
    checkpoint = load_checkpoint(path)
    assert list(checkpoint.weights) == ["weight"]
    assert (checkpoint.info, checkpoint.training_state) == ({}, None)


def rewrite(path, **metadata):
    """Writes a file that a stranger made up, its checksum in order."""
    from collectors.model_checkpoint.archive import _digest

    file = CheckpointFile(path)
    arrays = {name: file.read(name) for name in file.shapes}
    changed = {**file.metadata, **metadata}
    del changed["sha256"]
    write_checkpoint(path, arrays, {**changed, "sha256": _digest(arrays, changed)})


UNREADABLE = "metadata cannot be read"


def contents(info, training=None):
    return {"contents": json.dumps({"info": info, "training": training})}


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"format_version": "2"}, "has the format version 2, but this library reads 1; update it"),
        *(({"contents": text}, UNREADABLE) for text in ("nonsense", "{}", "[" * 5000)),
        (contents({"object": "os.system"}), "item of the unknown kind 'object'"),
        (contents({"tensor": "absent"}), UNREADABLE),
        (contents({"dict": [[{"dict": []}, 1]]}), UNREADABLE),
        (contents({"a": 1, "b": 2}), UNREADABLE),
        (contents({"dict": []}, 3), r"of the training state, \['epoch'.* are mis"),
        (contents({"dict": []}, {"dict": []}), r"\['epoch', .*are missing, wrong or"),
    ],
)
def test_files_that_strangers_made_up(metadata, match, tmp_path):
    path = tmp_path / "c.safetensors"
    write_archive(path, archive(), None, "AES-GCM")
    rewrite(path, **metadata)
    with pytest.raises(CheckpointError, match=match):
        load_checkpoint(path)
