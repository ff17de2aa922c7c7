"""A checkpoint that is saved by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..networks.readers import read_network
from ..validation import check_choice, check_instance, check_path
from .archive import Archive, storable_extra_states, write_archive
from .config import check_info_value
from .encryption import ENCRYPTION_MODES, check_key, require_cryptography
from .loading import SUFFIX
from .run import make_directory


def save_checkpoint(
    network: object,
    path: str | os.PathLike[str],
    append_dict: Mapping[str, Any] | None = None,
    enc_key: bytes | None = None,
    enc_mode: str = "AES-GCM",
) -> Path:
    """Saves a network's weights as one safetensors file, which ``load_checkpoint`` reads.

    The file appears whole, or not at all; one that is there already is replaced. The state of a training, from which
    ``Model.train`` can go on, is saved by ``ModelCheckpoint``.

    Args:
        network: a network of any supported framework.
        path: the file; ``.safetensors`` is added where its name ends otherwise. Missing folders are created.
        append_dict: what ``load_checkpoint(...).info`` will hold: str to int, float, bool, str, tensor or array.
        enc_key: the key to encrypt with: 16, 24 or 32 bytes. None does not encrypt.
        enc_mode: "AES-GCM" or "AES-CBC".

    Returns:
        The file's path.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        OSError: the file cannot be written; nothing is left behind, and a file that was there stays.
        ImportError: there is a key, and the package ``cryptography`` is missing.
    """
    file = check_path("path", path)
    if file.suffix != SUFFIX:
        file = file.with_name(file.name + SUFFIX)
    if append_dict is not None:
        check_instance("append_dict", append_dict, Mapping, "a dict or None")
    info = {key: check_info_value("append_dict", key, value) for key, value in (append_dict or {}).items()}
    check_choice("enc_mode", enc_mode, ENCRYPTION_MODES)
    if enc_key is not None:
        check_key("enc_key", enc_key)
        require_cryptography()
    archive = Archive.pack(read_network(network), info, None, storable_extra_states(network))
    make_directory(file.parent)
    write_archive(file, archive, enc_key, enc_mode)
    return file
