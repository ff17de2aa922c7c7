"""The one door for files that are replaced: whole or as they were, whatever the system does."""

import ast
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from places import ROOT

from collectors.errors import FileWriteError, LandscapeError
from collectors.files.local_files import WholeFile, bytes_written, write_bytes, write_files, writing

# Event files grow, a lock holds a process id, and a probe shows whether a URL can be written.
ALLOWED = {
    "collectors/files/local_files.py", "collectors/files/locks.py", "collectors/files/remote_path.py",
    "collectors/summary/writer.py",
}  # fmt: skip


def test_a_file_is_replaced_and_nothing_is_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write_bytes(path, b"new")
    with writing(tmp_path / "other") as file:
        assert [file.write(b"one"), file.write(memoryview(b"two")), file.write(b"")] == [3, 3, 0]
        assert not (tmp_path / "other").exists()
    discarded = WholeFile(path)
    assert discarded.write(np.arange(3.0).data) == 24
    discarded.discard()
    discarded.discard()
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == {"file": b"new", "other": b"onetwo"}


def interrupt(folder):
    raise KeyError("mine")


def lose_bytes(folder):
    """As some network file systems do, which say that all is well while a file is cut short."""
    (temporary,) = folder.glob(".file.*.tmp")
    os.truncate(temporary, 1)


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [(interrupt, KeyError, "mine"), (lose_bytes, FileWriteError, "4 bytes were written, but it has 1")],
)
def test_an_error_while_writing_leaves_the_old_file(tmp_path, spoil, error, text):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write():
        with writing(path) as file:
            file.write(b"half")
            spoil(tmp_path)

    with pytest.raises(error, match=text):
        write()
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == {"file": b"old"}


def test_of_files_that_belong_together_all_are_replaced_or_none(tmp_path):
    first, second = tmp_path / "first", tmp_path / "missing" / "second"
    first.write_bytes(b"old")
    with pytest.raises(FileWriteError, match=r"second cannot be written: No such file or directory\. What was there"):
        write_files({first: b"new", second: b"new"})
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == {"first": b"old"}


def test_the_error_names_the_file_the_reason_and_the_remedy(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileWriteError) as caught:
        write_bytes(tmp_path / "folder", b"new")
    assert str(caught.value) == (
        f"{tmp_path / 'folder'} cannot be written: Is a directory. What was there is untouched. Free some space or "
        "choose another directory."
    )
    assert isinstance(caught.value, LandscapeError)
    assert isinstance(caught.value, OSError)
    assert caught.value.reason == "Is a directory"
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


def test_what_a_library_or_a_program_writes_to_a_path():
    assert bytes_written(lambda path: path.write_bytes(b"one")) == b"one"
    script = "import sys; open(sys.argv[1], 'wb').write(b'two')"
    assert bytes_written(lambda path: subprocess.run([sys.executable, "-c", script, path], check=True)) == b"two"


@pytest.mark.slow
def test_no_other_file_of_the_packages_writes():
    found = []
    for package in ("collectors", "workers", "landscape"):
        for source in sorted((ROOT / package).rglob("*.py")):
            name, text = str(source.relative_to(ROOT)), source.read_text()
            if name not in ALLOWED and re.search(
                r"\b(write_bytes|write_text|to_netcdf|tofile|open|File|ZipFile)\(", text
            ):
                calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
                found += [name] * any(map(writes, calls))
    assert found == []


def writes(call):
    """Whether a call writes to a path by itself; ``write_bytes`` and ``write_text`` of the door are plain names."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_bytes", "write_text", "to_netcdf", "tofile"):
        # Those of a file behind a URL are whole by themselves.
        remote = ast.unparse(call.func).startswith(("self._path", "self._file", "(self.path", "RemotePath."))
        return isinstance(call.func, ast.Attribute) and not remote
    texts = [
        item.value for item in (*call.args, *(word.value for word in call.keywords)) if isinstance(item, ast.Constant)
    ]
    modes = [text for text in texts if isinstance(text, str) and text.rstrip("b+t") in ("w", "a", "x")]
    # Into memory: an archive or a file of HDF5 around a stream.
    given = ast.unparse(call.args[0]) if call.args else ""
    return name in ("open", "File", "ZipFile") and bool(modes) and not given.startswith(("stream", "zipfile."))
