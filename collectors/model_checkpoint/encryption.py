"""Encryption of a checkpoint's bytes: AES-GCM, and AES-CBC with an HMAC; both notice any change."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from typing import Any

from ..errors import CheckpointError
from ..validation import check_choice

ENCRYPTION_MODES = ("AES-GCM", "AES-CBC")
_VERSION = b"summary-landscape checkpoint 1 "
_SALT, _VERIFIER, _TAG, _DIGEST, _AES_BLOCK = 32, 16, 16, 32, 16
# The library takes at most 2 GiB at once.
_BLOCK = 64 * 1024 * 1024


def check_key(name: str, key: Any) -> None:
    # No error shows the key itself.
    if not isinstance(key, bytes):
        raise TypeError(f"{name} must be bytes of length 16, 24 or 32, or None, but got {type(key).__name__}.")
    if len(key) not in (16, 24, 32):
        raise ValueError(
            f"{name} must have 16, 24 or 32 bytes (AES-128, -192 or -256), but got {len(key)}. "
            "secrets.token_bytes(32) makes one."
        )


def check_encryption(key: Any, mode: Any) -> None:
    check_choice("enc_mode", mode, ENCRYPTION_MODES)
    if key is not None:
        check_key("enc_key", key)
        _require_cryptography()


def _require_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "encrypted checkpoints need the package cryptography; pip install 'summary-landscape[crypto]'."
        ) from error


def encrypt(plain: bytes, key: bytes, mode: str) -> bytes:
    """Returns the encrypted bytes: salt, verifier of the key, then the ciphertext of the mode."""
    salt = os.urandom(_SALT)
    file_key, mac_key, verifier = _derive(key, salt, mode)
    head = salt + verifier
    if mode == "AES-GCM":
        return head + _gcm(plain, file_key, head, opens=False)
    return head + _seal_cbc(plain, file_key, mac_key, head)


def decrypt(sealed: bytes, key: bytes, mode: str, where: str) -> bytes:
    """Returns what ``encrypt`` was given; ValueError for another key or mode, CheckpointError for changed bytes."""
    _require_cryptography()
    from cryptography.exceptions import InvalidTag

    head, body = sealed[: _SALT + _VERIFIER], sealed[_SALT + _VERIFIER :]
    file_key, mac_key, verifier = _derive(key, head[:_SALT], mode)
    if not hmac.compare_digest(verifier, head[_SALT:]):
        raise ValueError(f"dec_key must be the key that {where} was encrypted with, but it is another one.")
    try:
        if mode == "AES-GCM":
            return _gcm(body, file_key, head, opens=True)
        return _open_cbc(body, file_key, mac_key, head)
    except InvalidTag:
        raise CheckpointError(f"{where} was changed or truncated after it was written; copy it again.") from None


# HKDF-SHA256 (Krawczyk and Eronen 2010): each file has keys of its own, from the user's key and a random salt, so that
# nonces are mere block numbers and can never repeat under one key.
def _derive(key: bytes, salt: bytes, mode: str) -> tuple[bytes, bytes, bytes]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    length = len(key) + _DIGEST + _VERIFIER
    derived = HKDF(SHA256(), length, salt, _VERSION + mode.encode()).derive(key)
    return derived[: len(key)], derived[len(key) : -_VERIFIER], derived[-_VERIFIER:]


def _gcm(data: bytes, key: bytes, head: bytes, *, opens: bool) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    crypt = AESGCM(key).decrypt if opens else AESGCM(key).encrypt
    blocks = list(_blocks(data, _BLOCK + _TAG if opens else _BLOCK)) or [memoryview(b"")]
    # The number of blocks is authenticated with each, so that none can be cut off.
    about = head + len(blocks).to_bytes(8, "big")
    return b"".join(crypt(index.to_bytes(12, "big"), block, about) for index, block in enumerate(blocks))


def _seal_cbc(plain: bytes, key: bytes, mac_key: bytes, head: bytes) -> bytes:
    from cryptography.hazmat.primitives.padding import PKCS7

    vector = os.urandom(_AES_BLOCK)
    padder, encryptor = PKCS7(_AES_BLOCK * 8).padder(), _cbc(key, vector).encryptor()
    encrypted = [encryptor.update(padder.update(block)) for block in _blocks(plain, _BLOCK)]
    body = b"".join((vector, *encrypted, encryptor.update(padder.finalize())))
    return body + hmac.digest(mac_key, head + body, hashlib.sha256)


def _open_cbc(body: bytes, key: bytes, mac_key: bytes, head: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.padding import PKCS7

    body, tag = body[:-_DIGEST], body[-_DIGEST:]
    # Checked before anything is decrypted: nobody without the key may learn anything about the padding.
    if not hmac.compare_digest(tag, hmac.digest(mac_key, head + body, hashlib.sha256)):
        raise InvalidTag
    decryptor, unpadder = _cbc(key, body[:_AES_BLOCK]).decryptor(), PKCS7(_AES_BLOCK * 8).unpadder()
    plain = [unpadder.update(decryptor.update(block)) for block in _blocks(body[_AES_BLOCK:], _BLOCK)]
    return b"".join((*plain, unpadder.finalize()))


def _cbc(key: bytes, vector: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    return Cipher(AES(key), CBC(vector))


def _blocks(data: bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + size] for start in range(0, len(data), size))
