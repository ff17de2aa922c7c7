"""What a file is that is not what its reader expects, by how it begins, and what to do about it."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import CheckpointError

ENOUGH_BYTES = 4096
"""By which a file shows its kind."""

_PYTORCH = rb"PK\x03\x04.{26}[^/\0]{1,200}/data\.pkl|\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_UNPACK = "which this program does not unpack; unpack it first, and give what was in it"
# The first that fits counts.
_KINDS: Mapping[str, tuple[bytes, str]] = {
    "nothing": (rb"\Z", "empty; copy or download it again"),
    "Git LFS": (
        rb"version https://git-lfs",
        "a pointer of Git LFS, which stands for the file; run `git lfs pull` where it was cloned",
    ),
    "HTML": (
        rb"\s*<(!doctype\s+html|html|head|body)\b",
        "a web page (HTML), such as a log-in or an error page; download the file itself",
    ),
    "XML": (rb"\s*<(\?xml|Error>)", "an XML text, such as the answer of a storage; download the file itself"),
    "gzip": (rb"\x1f\x8b", f"compressed with gzip, {_UNPACK}"),
    "bzip2": (rb"BZh[1-9]1AY", f"compressed with bzip2, {_UNPACK}"),
    "xz": (rb"\xfd7zXZ\0", f"compressed with xz, {_UNPACK}"),
    "Zstandard": (rb"\x28\xb5\x2f\xfd", f"compressed with Zstandard, {_UNPACK}"),
    "tar": (
        rb".{257}ustar",
        "a tar archive; unpack it with `tar -xf` and give what was in it. If a PyTorch of before 2017 saved it, load "
        "it with torch.load and save its state dict alone",
    ),
    "HDF5": (
        rb"\x89HDF\r\n\x1a\n",
        "an HDF5 file, such as a landscape or weights of Keras; give a landscape to what reads landscapes, and a "
        "network of Keras itself once it has loaded its weights",
    ),
    "NumPy": (
        rb"\x93NUMPY|PK\x03\x04.{26}[^/\0]{1,200}?\.npy",
        "a file of NumPy; load it with numpy.load and give a dictionary of its arrays",
    ),
    "safetensors": (rb".{5}\0{3}\{", "a safetensors file"),
    "PyTorch": (_PYTORCH, "a PyTorch file"),
    "ZIP": (rb"PK\x03\x04(?!.{26}[^/\0]{1,200}?\.npy)", f"a ZIP archive, {_UNPACK}"),
    "pickle": (rb"\x80[\x02-\x05]", "a pickle; load it yourself if you trust it, and give a dictionary of its tensors"),
    "MindSpore": (rb"\n[\x80-\xff]{0,4}[\0-\x7f]\n[\x80-\xff]?[\0-\x7f]\w", "a checkpoint of MindSpore"),
    "JSON": (rb"\s*[\[{]\s*([\"\]}]|\Z)", "a JSON text, which holds no tensors; give the file that it belongs to"),
}
# With which endings they are read, but by nobody who asks for something else than weights.
_ENDINGS = {"a safetensors file": ".safetensors", "a PyTorch file": ".pt", "a checkpoint of MindSpore": ".ckpt"}
_SHOWN = 40
# Of fewer bytes, many are letters by chance.
_SHORTEST = 9


def other_kind(begins: bytes, *expected: str) -> str | None:
    """Returns what a file is and the remedy, as a sentence's end; None where the kind is expected or not known."""
    # These first: a header's length may be the two bytes with which gzip begins.
    if any(name in expected and re.match(pattern, begins, re.DOTALL) for name, (pattern, _) in _KINDS.items()):
        return None
    for pattern, words in _KINDS.values():
        if re.match(pattern, begins, re.DOTALL | re.IGNORECASE):
            return words
    text = None if "text" in expected else _text(begins)
    return None if text is None else f"a text that begins with {text[:_SHOWN]!r}; copy or download the file itself"


def check_kind(label: object, begins: bytes, *expected: str) -> None:
    """Raises CheckpointError where a file of weights is of a known kind that is not expected."""
    kind = other_kind(begins, *expected)
    if kind is not None:
        remedy = f"; rename it so that it ends with {_ENDINGS[kind]}" if kind in _ENDINGS else ""
        raise CheckpointError(f"checkpoint {label} is {kind}{remedy}.")


def check_file_kind(path: Path, *expected: str) -> None:
    """Raises CheckpointError where a file of weights is missing, or of a known kind that is not expected."""
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist.")
    with path.open("rb") as file:
        check_kind(path, file.read(ENOUGH_BYTES), *expected)


def damaged(path: Path, otherwise: str, reason: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path} is damaged or {otherwise} ({reason}); copy it again, or leave it out.")


@contextlib.contextmanager
def reporting_damage(path: Path, writer: str) -> Iterator[None]:
    """Turns whatever damaged bytes make a parser raise, which is nearly anything, into a CheckpointError."""
    try:
        yield
    except Exception as error:
        raise damaged(path, f"no checkpoint of {writer}", first_line(error)) from error


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def begins_as_pytorch(begins: bytes) -> bool:
    return re.match(_PYTORCH, begins, re.DOTALL) is not None


def _text(begins: bytes) -> str | None:
    """Returns the text that the bytes are, of which the last character may be cut off; None where they are none."""
    if len(begins) < _SHORTEST:
        return None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begins)
    except UnicodeDecodeError:
        return None
    return text.strip() if all(letter.isprintable() or letter.isspace() for letter in text) else None
